import { X509Certificate } from "node:crypto";
import type { Socket } from "node:net";
import type { Duplex } from "node:stream";
import { type DetailedPeerCertificate, type PeerCertificate, TLSSocket } from "node:tls";
import { bytesIn } from "../basics/bytes.ts";
import { RecentMap } from "../basics/collections.ts";
import { matchesWildcard } from "../basics/text.ts";
import { shownCertificate } from "../node/sockets.ts";
import { type CredentialFault, printable } from "../outcomes.ts";
import { chainFrom, MAX_CHAIN, parseAltNames, sha256 } from "./certificate-fields.ts";

/** The identity in a verified certificate (RFC 5280 §4.1.2.6 subject, §4.2.1.6 subjectAltName). */
export interface PeerIdentity {
  readonly cn?: string;
  readonly o: readonly string[];
  readonly dns: readonly string[];
  readonly uri: readonly string[];
  readonly serial: string;
  readonly fingerprint256: string;
  readonly notAfter: Date;
  /** The certificate and the intermediate ones (DER), with which it is verified again. */
  readonly chain: readonly Buffer[];
}

type Role = "caller" | "agent";

/**
 * The names that Konnectivity's installers give each role. Under one CA, and without a list of identities, a
 * certificate with the other role's name is refused (docs/architecture.md).
 */
const KONNECTIVITY_ROLE_NAMES = {
  caller: "konnectivity-client",
  agent: "konnectivity-agent",
} as const satisfies Record<Role, string>;

const FIELDS = ["CN", "O", "DNS", "URI"] as const;
type Field = (typeof FIELDS)[number];

/** `CN=`, `O=`, `DNS=`, `URI=`, with `*` for any characters. All parts, joined by commas, must match. */
export interface IdentityPattern {
  readonly text: string;
  readonly parts: readonly { readonly field: Field; readonly pieces: readonly string[] }[];
}

/** Parses a pattern. A backslash makes `,` and `*` literal. Throws an `Error` with a sentence about the pattern. */
export function parsePattern(text: string): IdentityPattern {
  const refuse = (why: string) =>
    new Error(`identity pattern "${text}": ${why} (write for example "CN=kube-apiserver" or "O=system:masters,CN=*")`);
  if (text.trim() === "") throw refuse("it is empty");
  if (/(?:^|[^\\])(?:\\\\)*\\(?:[^,*\\]|$)/.test(text)) throw refuse('a backslash stands only before ",", "*" or "\\"');
  const parts = splitAt(text, ",").map((part) => {
    const equals = part.indexOf("=");
    if (equals < 0) throw refuse(`"${part.trim()}" has no "=" (a comma inside a value is written "\\,")`);
    const name = part.slice(0, equals).trim();
    const field = FIELDS.find((each) => each === name.toUpperCase());
    if (field === undefined) throw refuse(`"${name}" is none of CN, O, DNS, URI`);
    const value = part.slice(equals + 1).trim();
    if (value === "") throw refuse(`${field} has no value`);
    const pieces = splitAt(field === "DNS" ? value.toLowerCase() : value, "*");
    return { field, pieces: pieces.map((piece) => piece.replace(/\\(.)/g, "$1")) };
  });
  return { text, parts };
}

/** Whether each part of the pattern matches at least one value of its field. */
export function matches(pattern: IdentityPattern, identity: Omit<PeerIdentity, "chain">): boolean {
  return pattern.parts.every(({ field, pieces }) =>
    values(identity, field).some((value) => matchesWildcard(pieces, value)),
  );
}

/** Whether this identity may use the port of this role. Without patterns: any but the other role's. */
export function permits(patterns: readonly IdentityPattern[], role: Role, identity: PeerIdentity): boolean {
  if (patterns.length > 0) return patterns.some((pattern) => matches(pattern, identity));
  return identity.cn !== KONNECTIVITY_ROLE_NAMES[role === "caller" ? "agent" : "caller"];
}

/**
 * The names in a certificate as one string. It does not change when the certificate is renewed; the fingerprint does.
 */
export function subjectOf(identity: Omit<PeerIdentity, "chain">): string {
  return namesIn(identity)
    .map((name) => name.replace(/[\\,]/g, "\\$&"))
    .join(",");
}

/** The first name in a certificate, short enough for a log or a status line. */
export function shortSubject(identity: PeerIdentity): string {
  return printable(namesIn(identity)[0] ?? "", 100);
}

/** The names, the most specific first: under SPIFFE every certificate has the same O. */
function namesIn({ cn, dns, uri, o, fingerprint256 }: Omit<PeerIdentity, "chain">): string[] {
  const names = [
    ...(cn === undefined ? [] : [`CN=${cn}`]),
    ...dns.map((value) => `DNS=${value}`),
    ...uri.map((value) => `URI=${value}`),
    ...o.map((value) => `O=${value}`),
  ];
  return names.length === 0 ? [fingerprint256] : names;
}

/**
 * The challenge of a 401 or 407 for a certificate. A challenge is required, and no scheme is registered for it (RFC
 * 9110 §11.1).
 */
export const CERTIFICATE_CHALLENGE = "ClientCertificate";

/** The identity of a verified certificate, or why there is none, as a sentence for the 401 or 407. */
export type PeerVerification =
  | { readonly identity: PeerIdentity; readonly refusal?: undefined; readonly fault?: undefined }
  | { readonly identity?: undefined; readonly refusal: string; readonly fault?: CredentialFault };

/**
 * Reads the result of the TLS handshake of a listener that requests a certificate without requiring a valid one.
 * `ca`: the PEM by which TLS verified it; the identity read from a certificate is remembered for each CA.
 */
export function verifyPeer(socket: Socket, ca: string | undefined): PeerVerification {
  // A balancer's header about a certificate is never read: any client can send it.
  if (!(socket instanceof TLSSocket)) {
    return {
      refusal: "no client certificate comes through to this port: TLS ends in front of it",
      fault: "certificate_missing",
    };
  }
  if (socket.authorized) return verifiedPeer(socket, ca);
  const certificate = socket.getPeerCertificate(false);
  if (certificate?.fingerprint256 === undefined) return NO_CERTIFICATE;
  const code = codeOf(socket.authorizationError);
  const fault = TIME_FAULTS[code];
  return { refusal: explain(certificate, code), ...(fault && { fault }) };
}

/** Go's TLS sends nothing when none of its certificates comes from a CA that the server named. */
const NO_CERTIFICATE: PeerVerification = {
  refusal: "no client certificate was sent, or none of a CA that is accepted here",
  fault: "certificate_missing",
};

/**
 * Whether a handshake's cost was necessary: its client has shown no certificate, or an accepted one. A client without a
 * certificate sends a request with a token.
 */
export function isHarmless(socket: TLSSocket, ca: string | undefined): boolean {
  if (socket.authorized) return verifiedPeer(socket, ca).identity !== undefined;
  return shownCertificate(socket) === undefined;
}

function verifiedPeer(socket: TLSSocket, ca: string | undefined): PeerVerification {
  const shown = shownCertificate(socket);
  const key = shown && sha256(shown);
  const known = key === undefined ? undefined : recent.get(key);
  if (known !== undefined && known.ca === ca) return { identity: known.identity };
  const certificate = socket.getPeerCertificate(true);
  if (certificate?.fingerprint256 === undefined) return NO_CERTIFICATE;
  try {
    const identity = identityIn(certificate);
    if (key !== undefined && mayBeKept(identity)) recent.set(key, { ca, identity });
    return { identity };
  } catch (error) {
    return { refusal: `the client certificate ${error instanceof Error ? error.message : String(error)}` };
  }
}

/** Identities that are remembered: as many as clusters that one server is made for. */
const MOST_KNOWN = 1_024;
/**
 * Larger ones are read each time, so that what is remembered stays below 12 MiB whatever tenants put into certificates.
 */
const LARGEST_KNOWN = { chainBytes: 8 * 1024, names: 16 };
/**
 * One caller presents the same certificate at each CONNECT, and reading it takes 200 µs and more, because Node copies
 * the chain; so the last ones are kept by the hash of their bytes (DER). Only the content of the certificate is kept,
 * never whether it was accepted. By another CA it may have come with another chain.
 */
const recent = new RecentMap<string, { readonly ca: string | undefined; readonly identity: PeerIdentity }>(MOST_KNOWN);

function mayBeKept({ o, dns, uri, chain }: PeerIdentity): boolean {
  return bytesIn(chain) <= LARGEST_KNOWN.chainBytes && o.length + dns.length + uri.length <= LARGEST_KNOWN.names;
}

/**
 * Subject, issuer and serial number of the certificate of an unauthenticated peer, for a log. Any name can be written
 * into a certificate, so nothing is decided by it.
 */
export function claimedBy(socket: Duplex): string | undefined {
  if (!(socket instanceof TLSSocket)) return undefined;
  const { subject, issuer, serialNumber } = socket.getPeerCertificate(false) ?? {};
  if (serialNumber === undefined) return undefined;
  const name = (of: { readonly CN?: string | string[] } | undefined): string =>
    of?.CN === undefined ? "without a CN" : `CN=${printable(String(of.CN), 60)}`;
  return `subject ${name(subject)}, issuer ${name(issuer)}, serial ${printable(serialNumber, 60)}`;
}

/**
 * The result of TLS for the peer's certificate: `verified`, or one of OpenSSL's codes. `undefined`: none was sent.
 */
export function certificateVerdict(socket: Socket): string | undefined {
  if (!(socket instanceof TLSSocket) || shownCertificate(socket) === undefined) return undefined;
  return socket.authorized ? "verified" : codeOf(socket.authorizationError);
}

const VERIFY_ERRORS: Record<string, string> = {
  UNABLE_TO_GET_ISSUER_CERT: "is not signed by a CA that is accepted here",
  UNABLE_TO_GET_ISSUER_CERT_LOCALLY: "is not signed by a CA that is accepted here",
  UNABLE_TO_VERIFY_LEAF_SIGNATURE: "is not signed by a CA that is accepted here",
  DEPTH_ZERO_SELF_SIGNED_CERT: "is self-signed and not accepted here",
  SELF_SIGNED_CERT_IN_CHAIN: "is not signed by a CA that is accepted here",
  CERT_UNTRUSTED: "is not signed by a CA that is accepted here",
  CERT_SIGNATURE_FAILURE: "has a signature that its CA did not make",
  INVALID_PURPOSE: "may not be used by a client (its extended key usage lacks clientAuth)",
  INVALID_CA: "was signed by a certificate that is not a CA",
  PATH_LENGTH_EXCEEDED: "has a chain longer than its CA allows",
  CERT_CHAIN_TOO_LONG: "has a chain that is too long",
  CERT_REVOKED: "is revoked",
  CERT_REJECTED: "is rejected by its CA's settings",
};

const TIME_FAULTS: Readonly<Record<string, CredentialFault>> = {
  CERT_HAS_EXPIRED: "certificate_expired",
  CERT_NOT_YET_VALID: "certificate_not_yet_valid",
};

function explain(certificate: PeerCertificate, code: string): string {
  // OpenSSL has one code for an expired CA and an expired leaf; the leaf's dates tell them apart.
  const { valid_from: validFrom, valid_to: validTo } = certificate;
  const time = Date.now();
  if (code === "CERT_HAS_EXPIRED") {
    return Date.parse(validTo) < time
      ? `the client certificate expired on ${isoDate(validTo)}`
      : "the CA of the client certificate has expired";
  }
  if (code === "CERT_NOT_YET_VALID") {
    return Date.parse(validFrom) > time
      ? `the client certificate is not valid before ${isoDate(validFrom)}: check both clocks`
      : "the CA of the client certificate is not valid yet: check both clocks";
  }
  const known = Object.hasOwn(VERIFY_ERRORS, code) ? VERIFY_ERRORS[code] : undefined;
  return `the client certificate ${known ?? `was not accepted (${code})`}`;
}

/** At run time `authorizationError` is a code or an `Error` that carries one, although its type says `Error`. */
function codeOf(error: unknown): string {
  if (error instanceof Error) return "code" in error ? String(error.code) : error.message;
  return String(error);
}

function isoDate(openssl: string): string {
  return new Date(openssl).toISOString().replace(".000", "");
}

/** The identity in a certificate that TLS has verified. Throws what is wrong with it. */
export function identityIn(certificate: DetailedPeerCertificate): PeerIdentity {
  return { ...readNames(certificate), chain: chainOf(certificate) };
}

/** The identity in the first certificate of a chain (DER) that was verified elsewhere. Throws what is wrong with it. */
export function identityOfChain(chain: readonly Buffer[]): PeerIdentity {
  const [leaf] = chain;
  if (leaf === undefined) throw new Error("is missing");
  return { ...readNames(new X509Certificate(leaf).toLegacyObject()), chain };
}

/** A chain is kept as long as its connection; three certificates with RSA keys of 4,096 bits have 6 KiB. */
export const MAX_CHAIN_BYTES = 32 * 1024;

/** The chain without the CA at its end. Not by `getPeerX509Certificate`: a second call returns the leaf alone. */
function chainOf(leaf: DetailedPeerCertificate): Buffer[] {
  const all = chainFrom(leaf);
  if (all.some(isSlowToVerify)) throw new Error("or one above it has an RSA key with a public exponent over 32 bits");
  // CAs that have signed each other would repeat without end.
  if (new Set(all.map(({ fingerprint256 }) => fingerprint256)).size >= MAX_CHAIN)
    throw new Error("has too long a chain");
  // A self-signed certificate that is trusted as it is stays.
  const chain = all.filter((each) => each === leaf || each.issuerCertificate !== each).map(({ raw }) => raw);
  if (bytesIn(chain) > MAX_CHAIN_BYTES) throw new Error("and what came with it are longer than 32 KiB");
  return chain;
}

/** Usual exponents have 17 bits. An exponent as long as the key makes each verification take 8 ms and not 0.1. */
function isSlowToVerify({ exponent = "" }: PeerCertificate): boolean {
  return exponent.length > "0xffffffff".length;
}

/** The names in a certificate. Throws what is wrong with one that readers could understand differently. */
export function readNames(certificate: PeerCertificate): Omit<PeerIdentity, "chain"> {
  // Node gives each value as it is, and an array if there are several.
  const subject: { readonly CN?: string | string[]; readonly O?: string | string[] } = certificate.subject;
  const names = [subject.CN ?? []].flat();
  if (names.length > 1) throw new Error("has several common names (CN), of which every reader may choose another");
  const alternatives = parseAltNames(certificate.subjectaltname ?? "");
  return {
    ...(names[0] === undefined ? {} : { cn: names[0] }),
    o: [subject.O ?? []].flat(),
    dns: alternatives.filter(({ kind }) => kind === "DNS").map(({ value }) => value),
    uri: alternatives.filter(({ kind }) => kind === "URI").map(({ value }) => value),
    serial: certificate.serialNumber,
    fingerprint256: certificate.fingerprint256,
    notAfter: new Date(certificate.valid_to),
  };
}

function values(identity: Omit<PeerIdentity, "chain">, field: Field): readonly string[] {
  if (field === "CN") return identity.cn ? [identity.cn] : [];
  if (field === "DNS") return identity.dns.map((name) => name.toLowerCase());
  return field === "O" ? identity.o : identity.uri;
}

/** Splits at a separator without a backslash before it; backslashes stay. */
function splitAt(text: string, separator: string): string[] {
  const parts = [""];
  for (let at = 0; at < text.length; at++) {
    const character = text.charAt(at);
    if (character === separator) parts.push("");
    else parts[parts.length - 1] += character === "\\" ? character + text.charAt(++at) : character;
  }
  return parts;
}
