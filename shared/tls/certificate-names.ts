import type { X509Certificate } from "node:crypto";
import type { PeerCertificate } from "node:tls";
import { printable } from "../outcomes.ts";
import { parseAltNames } from "./identity.ts";

/** So many names are told: enough to see what is meant. */
const MAX_NAMES = 3;

/** What Node says of a failed handshake; where a certificate lacks the name that was dialled, the names that it does have. */
export function identityWords(error: Error): string {
  const { code, host = "", cert } = error as WrongIdentity;
  if (code !== "ERR_TLS_CERT_ALTNAME_INVALID" || host === "" || cert === undefined) return error.message;
  const names = namesIn(cert);
  if (names === undefined) return `the certificate has no name in it, and so not ${host}`;
  return `the certificate is for ${names}, not for ${host}`;
}

/** `a.example, b.example and 3 more`: for whom a certificate is; `undefined`: nobody is named. The words are a stranger's. */
export function namesIn({ subject, subjectaltname = "" }: Partial<PeerCertificate>): string | undefined {
  const alternatives = readNames(subjectaltname);
  const common = [subject?.CN ?? []].flat().filter((name) => name !== "");
  const names = (alternatives.length > 0 ? alternatives : common).map((name) => printable(name, 80));
  if (names.length === 0) return undefined;
  const more = names.length - MAX_NAMES;
  return more > 0 ? `${names.slice(0, MAX_NAMES).join(", ")} and ${more} more` : names.join(", ");
}

/** What a server may be called by. */
function readNames(text: string): string[] {
  try {
    const hosts = parseAltNames(text).filter(({ kind }) => kind === "DNS" || kind === "IP Address");
    return hosts.map(({ value }) => value);
  } catch {
    return [text];
  }
}

/** As `tls.checkServerIdentity` makes it. */
interface WrongIdentity extends NodeJS.ErrnoException {
  readonly host?: string;
  readonly cert?: PeerCertificate;
}

/** `CN`, or else the organisation, of a certificate's issuer; the words are a stranger's. */
export function issuerName({ issuer }: Pick<X509Certificate, "issuer">): string | undefined {
  const lines = (issuer ?? "").split("\n");
  const partOf = (field: string) => lines.find((line) => line.startsWith(`${field}=`))?.slice(field.length + 1);
  const name = partOf("CN") ?? partOf("O");
  return name === undefined ? undefined : printable(name, 100);
}

/** OpenSSL's words for a chain that leads to none of our CAs; whoever expired or has another name is somebody we know. */
const UNTRUSTED: ReadonlySet<string | undefined> = new Set([
  "UNABLE_TO_GET_ISSUER_CERT",
  "UNABLE_TO_GET_ISSUER_CERT_LOCALLY",
  "UNABLE_TO_VERIFY_LEAF_SIGNATURE",
  "SELF_SIGNED_CERT_IN_CHAIN",
  "DEPTH_ZERO_SELF_SIGNED_CERT",
  "CERT_SIGNATURE_FAILURE",
]);

export function isUntrusted({ code }: NodeJS.ErrnoException): boolean {
  return UNTRUSTED.has(code);
}
