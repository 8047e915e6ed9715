import { createHash, X509Certificate } from "node:crypto";

/** One element of DER (X.690 §10): a tag and its content. */
export interface Element {
  readonly tag: number;
  readonly content: Buffer;
  /** The bytes of the element, tag and length included. */
  readonly whole: Buffer;
}

export const TAG = { boolean: 0x01, bitString: 0x03, octetString: 0x04, oid: 0x06, sequence: 0x30 } as const;

/** The elements in these bytes; throws if they are not DER to the last byte. */
export function* elements(bytes: Buffer): Generator<Element> {
  let at = 0;
  while (at < bytes.length) {
    const tag = bytes[at];
    const { length, from } = lengthAt(bytes, at + 1);
    const to = from + length;
    if (tag === undefined || (tag & 0x1f) === 0x1f || to > bytes.length) throw new Error("is not DER");
    yield { tag, content: bytes.subarray(from, to), whole: bytes.subarray(at, to) };
    at = to;
  }
}

/** The elements inside a SEQUENCE. */
export function inside({ tag, content }: Element): Element[] {
  if (tag !== TAG.sequence) throw new Error("is not what it should be");
  return [...elements(content)];
}

/** The element in these bytes; throws if they are not exactly one. */
export function theElement(bytes: Buffer): Element {
  const [only, more] = elements(bytes);
  if (only === undefined || more !== undefined) throw new Error("is not what it should be");
  return only;
}

function lengthAt(bytes: Buffer, at: number): { readonly length: number; readonly from: number } {
  const first = bytes[at] ?? 0xff;
  if (first < 0x80) return { length: first, from: at + 1 };
  const size = first & 0x7f;
  if (size === 0 || size > 4 || at + 1 + size > bytes.length) throw new Error("is not DER");
  return { length: bytes.readUIntBE(at + 1, size), from: at + 1 + size };
}

/**
 * The subject of a certificate (RFC 5280 §4.1.2.6) as it is encoded: a CA encodes its name in one way. Throws for a
 * certificate that is not DER; OpenSSL accepts some.
 */
export function subjectOf(certificate: Buffer): Buffer {
  return partOf(certificate, 4);
}

/**
 * The public key of a certificate with its algorithm (RFC 5280 §4.1.2.7), as it is encoded. Throws as `subjectOf` does.
 */
export function publicKeyOf(certificate: Buffer): Buffer {
  return partOf(certificate, 5);
}

/**
 * The extensions of a certificate (RFC 5280 §4.1.2.9): the DER of each by its hexadecimal OID. `undefined`: the
 * certificate has version 1, which has none. Throws as `subjectOf` does.
 */
function extensionsOf(certificate: Buffer): Map<string, Buffer> | undefined {
  const parts = signedParts(certificate);
  if (parts[0]?.tag !== VERSION) return undefined;
  const extensions = parts.find(({ tag }) => tag === EXTENSIONS);
  if (extensions === undefined) return new Map();
  const all = inside(theElement(extensions.content)).map((extension): [string, Buffer] => {
    const parts = inside(extension); // OID, "critical" if it is, value
    return [parts[0]?.content.toString("hex") ?? "", parts.at(-1)?.content ?? Buffer.alloc(0)];
  });
  return new Map(all);
}

/** Tags in a certificate; one of version 1 has neither. */
const VERSION = 0xa0;
const EXTENSIONS = 0xa3;

/** A part of the signed content by its index, without the version. */
function partOf(certificate: Buffer, index: number): Buffer {
  const parts = signedParts(certificate);
  if (parts[0]?.tag === VERSION) parts.shift();
  const part = parts[index];
  if (part === undefined) throw new Error("is no certificate");
  return part.whole;
}

function signedParts(certificate: Buffer): Element[] {
  const [tbs] = inside(theElement(certificate));
  return tbs === undefined ? [] : inside(tbs);
}

/** Whether the key of this CA has made the signature of the certificate. */
export function isSignedBy(certificate: X509Certificate, ca: X509Certificate): boolean {
  try {
    return certificate.verify(ca.publicKey);
  } catch {
    return false; // a key of another kind, or of one that Node does not know
  }
}

/**
 * Parses Node's text form of subjectAltName: `KIND:value` joined by ", ", where a value that holds a comma, a quote or
 * a control byte is a JSON string. A split at commas alone made two names of one (CVE-2021-44532).
 */
export function parseAltNames(text: string): { kind: string; value: string }[] {
  const entry = /([^:",]+):(?:("(?:[^"\\]|\\.)*")|([^",]*(?:"(?:[^"\\]|\\.)*"[^",]*)?))(?:, |$)/y;
  const names: { kind: string; value: string }[] = [];
  while (entry.lastIndex < text.length) {
    const found = entry.exec(text);
    if (found === null) throw new Error("has a subjectAltName that cannot be read");
    names.push({ kind: found[1] ?? "", value: found[2] === undefined ? (found[3] ?? "") : JSON.parse(found[2]) });
  }
  return names;
}

/** RFC 5280 §4.2.1.12. */
const SERVER_AUTH = "1.3.6.1.5.5.7.3.1";
const CLIENT_AUTH = "1.3.6.1.5.5.7.3.2";

/** anyExtendedKeyUsage: Go accepts it for every usage, OpenSSL neither for a server nor for a client. */
const ANY = "2.5.29.37.0";

/** The uses that the extended key usage of a certificate allows. */
export interface CertificateUsage {
  readonly servers: boolean;
  readonly clients: boolean;
  readonly any: boolean;
}

/** A certificate without that extension allows every use. */
export function usageOf({ keyUsage }: X509Certificate): CertificateUsage {
  // Node calls the extended one by this name; its types do not know that it may be absent.
  const usages: readonly string[] | undefined = keyUsage;
  return {
    servers: usages?.includes(SERVER_AUTH) ?? true,
    clients: usages?.includes(CLIENT_AUTH) ?? true,
    any: usages?.includes(ANY) ?? true,
  };
}

/** OIDs of extensions, hexadecimal (RFC 5280 §4.2.1.9, §4.2.1.3). */
const BASIC_CONSTRAINTS = "551d13";
const KEY_USAGE = "551d0f";
/** Netscape's certificate type, from before there were the two above: a BIT STRING, whose bit 5 is "CA of TLS". */
const NETSCAPE_TYPE = "6086480186f8420101";
const NETSCAPE_TLS_CA = 0x04;

/**
 * Whether a root without the CA flag may be a CA. OpenSSL accepts roots of X.509 version 1, roots with a key usage
 * (`checkIssued` verifies that it allows signing), and roots whose Netscape certificate type allows it. A CA under a
 * root needs the flag.
 */
export function mayBeRoot({ raw }: X509Certificate): boolean {
  try {
    const extensions = extensionsOf(raw);
    if (extensions === undefined) return true;
    if (extensions.has(BASIC_CONSTRAINTS)) return false;
    const type = extensions.get(NETSCAPE_TYPE);
    const bits = type === undefined ? 0 : (theElement(type).content[1] ?? 0);
    return extensions.has(KEY_USAGE) || (bits & NETSCAPE_TLS_CA) !== 0;
  } catch {
    return false; // not DER, although OpenSSL accepts it
  }
}

/** Maximum length of a chain. CAs that have signed each other make an endless one. */
export const MAX_CHAIN = 10;

/** A certificate, and those above it as far as TLS knows them. */
export function chainFrom<C extends { readonly fingerprint256: string; readonly issuerCertificate?: C | undefined }>(
  leaf: C,
): C[] {
  const chain: C[] = [];
  for (let next: C | undefined = leaf; next !== undefined && chain.length < MAX_CHAIN; ) {
    chain.push(next);
    const issuer: C | undefined = next.issuerCertificate;
    next = issuer?.fingerprint256 === next.fingerprint256 ? undefined : issuer;
  }
  return chain;
}

/** Not by `checkIssued`: a client's certificate that is trusted as it is has no right to sign. */
export function isSelfSigned(certificate: X509Certificate): boolean {
  return certificate.subject === certificate.issuer && isSignedBy(certificate, certificate);
}

/**
 * Whether the issuer has signed the certificate, even if it does not say that it is a CA. Verifiers differ in what they
 * accept as a CA. Where the trust of clusters is compared, it is safe to assume too many CAs.
 */
export function mayHaveSigned(issuer: X509Certificate, certificate: X509Certificate): boolean {
  return certificate.checkIssued(issuer) && isSignedBy(certificate, issuer);
}

/** The PEM labels of certificates that OpenSSL accepts for a CA. */
const CERTIFICATE = /-----BEGIN ((?:X509 |TRUSTED )?CERTIFICATE)-----[^-]+-----END \1-----/g;

/** The certificates in a PEM file, in their order; throws Node's error for one that is damaged. */
export function certificates(pem: string): X509Certificate[] {
  return blocksIn(pem).map((block) => new X509Certificate(block));
}

/** The text of each certificate in a PEM file. */
export function blocksIn(pem: string): string[] {
  return pem.match(CERTIFICATE) ?? [];
}

/**
 * Whether a certificate in a CA file may be trusted: it is a CA, or it has signed itself. OpenSSL decides what an old
 * root without the CA flag may sign (`mayBeRoot`); a server's or client's own certificate that has signed itself is
 * trusted as it is. Any other is a leaf.
 */
export function mayBeTrusted(certificate: X509Certificate): boolean {
  return certificate.ca || isSelfSigned(certificate);
}

/** The hash by which certificates, keys and bundles are remembered. */
export function sha256(content: string | Buffer): string {
  return createHash("sha256").update(content).digest("base64url");
}
