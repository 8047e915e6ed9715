import type { X509Certificate } from "node:crypto";
import type { PeerCertificate } from "node:tls";
import { printable } from "../outcomes.ts";
import { parseAltNames } from "./identity.ts";

/** Maximum number of names in a sentence. */
const MAX_NAMES = 3;

/**
 * Why a handshake failed: Node's message, or, for a certificate without the name that was dialled, the names that it
 * has.
 */
export function identityWords(error: Error): string {
  const { code, host = "", cert } = error as WrongIdentity;
  if (code !== "ERR_TLS_CERT_ALTNAME_INVALID" || host === "" || cert === undefined) return error.message;
  const names = namesIn(cert);
  if (names === undefined) return `the certificate has no name in it, and so not ${host}`;
  return `the certificate is for ${names}, not for ${host}`;
}

/** The names in a certificate: `a.example, b.example and 3 more`. Whoever made the certificate chose them. */
export function namesIn({ subject, subjectaltname = "" }: Partial<PeerCertificate>): string | undefined {
  const alternatives = readNames(subjectaltname);
  const common = [subject?.CN ?? []].flat().filter((name) => name !== "");
  const names = (alternatives.length > 0 ? alternatives : common).map((name) => printable(name, 80));
  if (names.length === 0) return undefined;
  const more = names.length - MAX_NAMES;
  return more > 0 ? `${names.slice(0, MAX_NAMES).join(", ")} and ${more} more` : names.join(", ");
}

/** The DNS names and IP addresses in a subjectAltName. */
function readNames(text: string): string[] {
  try {
    const hosts = parseAltNames(text).filter(({ kind }) => kind === "DNS" || kind === "IP Address");
    return hosts.map(({ value }) => value);
  } catch {
    return [text];
  }
}

/** The error of `tls.checkServerIdentity`. */
interface WrongIdentity extends NodeJS.ErrnoException {
  readonly host?: string;
  readonly cert?: PeerCertificate;
}

/** `CN`, or else the organisation, of a certificate's issuer. Whoever made the certificate chose it. */
export function issuerName({ issuer }: Pick<X509Certificate, "issuer">): string | undefined {
  const lines = (issuer ?? "").split("\n");
  const partOf = (field: string) => lines.find((line) => line.startsWith(`${field}=`))?.slice(field.length + 1);
  const name = partOf("CN") ?? partOf("O");
  return name === undefined ? undefined : printable(name, 100);
}

/**
 * OpenSSL's codes for a chain that leads to none of our CAs. An expired certificate, or a wrong name, is not among
 * them.
 */
const UNTRUSTED: ReadonlySet<string | undefined> = new Set([
  "UNABLE_TO_GET_ISSUER_CERT",
  "UNABLE_TO_GET_ISSUER_CERT_LOCALLY",
  "UNABLE_TO_VERIFY_LEAF_SIGNATURE",
  "SELF_SIGNED_CERT_IN_CHAIN",
  "DEPTH_ZERO_SELF_SIGNED_CERT",
  "CERT_SIGNATURE_FAILURE",
]);

/** Whether none of our CAs has signed the certificate. */
export function isUntrusted({ code }: NodeJS.ErrnoException): boolean {
  return UNTRUSTED.has(code);
}
