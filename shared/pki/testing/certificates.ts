import "../reflect.ts"; // must come before @peculiar/x509
import {
  createPrivateKey,
  createPublicKey,
  KeyObject,
  randomBytes,
  sign,
  webcrypto,
  X509Certificate,
} from "node:crypto";
import * as x509 from "@peculiar/x509";
import { type Element, inside, theElement } from "../../tls/certificate-fields.ts";
import type { CertificateAndKey } from "../certificates.ts";

const P256 = { name: "ECDSA", namedCurve: "P-256", hash: "SHA-256" } as const;
const HOUR = 3_600_000;

interface MadeCertificate {
  readonly cn: string;
  /** `unsaid`: it may sign certificates and does not say whether it is a CA, as roots of X.509 version 1 do not. */
  readonly isCa?: boolean | "unsaid";
  /** Without a key usage, which lets it sign and lets it do everything else. */
  readonly anyUsage?: boolean;
  /** Absent: it signs itself. */
  readonly by?: CertificateAndKey;
  /** The key of this one once more. */
  readonly keyOf?: CertificateAndKey;
  readonly serial?: string;
  /** Absent: in a day. */
  readonly notAfter?: Date;
  /** This number of bytes more. */
  readonly padding?: number;
  /** The byte of a Netscape certificate type; absent: the extension is. */
  readonly netscapeType?: number;
  /** Extended key usage (OIDs); absent: the extension is. */
  readonly extendedUsages?: readonly string[];
}

/** Certificates that `Authority` does not make: CAs in the middle, renewed ones, serial numbers of one's choice. */
export async function certificateOf(wish: MadeCertificate): Promise<CertificateAndKey> {
  const {
    cn,
    isCa = true,
    anyUsage = false,
    by,
    keyOf,
    serial = `40${randomBytes(8).toString("hex")}`,
    notAfter = new Date(Date.now() + 24 * HOUR),
    padding = 0,
    netscapeType,
    extendedUsages,
  } = wish;
  const keys = await (keyOf === undefined
    ? webcrypto.subtle.generateKey(P256, true, ["sign", "verify"])
    : keysOf(keyOf));
  const signer = by === undefined ? keys : await keysOf(by);
  const subject = `CN=${cn}`;
  const usages = isCa
    ? x509.KeyUsageFlags.keyCertSign | x509.KeyUsageFlags.cRLSign
    : x509.KeyUsageFlags.digitalSignature;
  const certificate = await x509.X509CertificateGenerator.create({
    serialNumber: serial,
    subject,
    issuer: by === undefined ? subject : new x509.X509Certificate(by.cert).subject,
    notBefore: new Date(Date.now() - HOUR),
    notAfter,
    signingAlgorithm: P256,
    publicKey: keys.publicKey,
    signingKey: signer.privateKey,
    extensions: [
      ...(padding === 0 ? [] : [new x509.Extension("1.2.3.4", false, Buffer.alloc(padding))]),
      ...(netscapeType === undefined
        ? []
        : [new x509.Extension("2.16.840.1.113730.1.1", false, Buffer.from([0x03, 0x02, 0x00, netscapeType]))]),
      ...(isCa === "unsaid" ? [] : [new x509.BasicConstraintsExtension(isCa, undefined, true)]),
      ...(anyUsage ? [] : [new x509.KeyUsagesExtension(usages, true)]),
      ...(extendedUsages === undefined ? [] : [new x509.ExtendedKeyUsageExtension([...extendedUsages])]),
      await x509.SubjectKeyIdentifierExtension.create(keys.publicKey),
      await x509.AuthorityKeyIdentifierExtension.create(signer.publicKey),
    ],
  });
  const der = Buffer.from(await webcrypto.subtle.exportKey("pkcs8", keys.privateKey));
  const key = createPrivateKey({ key: der, format: "der", type: "pkcs8" }).export({ type: "pkcs8", format: "pem" });
  return { cert: `${certificate.toString("pem").trimEnd()}\n`, key: key.toString() };
}

/** The same root in X.509 version 1, which has no extensions. */
export function asVersion1({ cert, key }: CertificateAndKey): CertificateAndKey {
  const [tbs, algorithm] = inside(theElement(new X509Certificate(cert).raw)) as [Element, Element];
  const parts = inside(tbs).filter(({ tag }) => tag !== 0xa0 && tag !== 0xa3);
  const signed = sequence(...parts.map(({ whole }) => whole));
  const signature = sign("sha256", signed, key);
  const bits = Buffer.from([0x03, signature.length + 1, 0x00]);
  const pem = sequence(signed, algorithm.whole, Buffer.concat([bits, signature])).toString("base64");
  return { key, cert: `-----BEGIN CERTIFICATE-----\n${pem.replace(/.{64}/g, "$&\n")}\n-----END CERTIFICATE-----\n` };
}

function sequence(...parts: readonly Buffer[]): Buffer {
  const content = Buffer.concat(parts);
  return Buffer.concat([Buffer.from([0x30, 0x82, content.length >> 8, content.length & 0xff]), content]);
}

interface MadeCrl {
  readonly thisUpdate?: Date;
  readonly nextUpdate?: Date;
  readonly extensions?: readonly x509.Extension[];
  readonly entryExtensions?: readonly x509.Extension[];
}

/** The content of one block of PEM. */
export function derOf(pem: string): Buffer {
  return Buffer.from(pem.replace(/-----[^-]+-----/g, ""), "base64");
}

/** The CRL of a CA (PEM) that lists these certificates. */
export async function crlOf(
  issuer: CertificateAndKey,
  revoked: readonly Pick<CertificateAndKey, "cert">[],
  { thisUpdate = new Date(Date.now() - HOUR), nextUpdate, extensions = [], entryExtensions = [] }: MadeCrl = {},
): Promise<string> {
  const { privateKey } = await keysOf(issuer);
  const crl = await x509.X509CrlGenerator.create({
    issuer: new x509.X509Certificate(issuer.cert).subject,
    thisUpdate,
    ...(nextUpdate !== undefined && { nextUpdate }),
    signingAlgorithm: P256,
    signingKey: privateKey,
    extensions: [...extensions],
    entries: revoked.map(({ cert }) => ({
      serialNumber: new x509.X509Certificate(cert).serialNumber,
      revocationDate: thisUpdate,
      reason: x509.X509CrlReason.keyCompromise,
      ...(entryExtensions.length > 0 && { extensions: [...entryExtensions] }),
    })),
  });
  // The library's own label is another one.
  return `${crl.toString("pem").replaceAll(" CRL-", " X509 CRL-").trimEnd()}\n`;
}

/** An extension of any kind, with nothing in it. */
export function emptyExtension(oid: string, critical: boolean): x509.Extension {
  return new x509.Extension(oid, critical, Buffer.from([0x30, 0x00]));
}

async function keysOf({ key }: CertificateAndKey): Promise<webcrypto.CryptoKeyPair> {
  const der = createPrivateKey(key).export({ type: "pkcs8", format: "der" });
  const spki = createPublicKey(key).export({ type: "spki", format: "der" });
  return {
    privateKey: await webcrypto.subtle.importKey("pkcs8", der, P256, true, ["sign"]),
    publicKey: await webcrypto.subtle.importKey("spki", spki, P256, true, ["verify"]),
  };
}

/** A server's certificate with an RSA key, which signs itself. */
export async function rsaCertificate(host: string): Promise<CertificateAndKey> {
  const rsa = { name: "RSASSA-PKCS1-v1_5", hash: "SHA-256", modulusLength: 2048, publicExponent: Buffer.of(1, 0, 1) };
  const keys = await webcrypto.subtle.generateKey(rsa, true, ["sign", "verify"]);
  const certificate = await x509.X509CertificateGenerator.createSelfSigned({
    name: `CN=${host}`,
    notBefore: new Date(Date.now() - HOUR),
    notAfter: new Date(Date.now() + 24 * HOUR),
    signingAlgorithm: rsa,
    keys,
    extensions: [new x509.SubjectAlternativeNameExtension([{ type: "dns", value: host }])],
  });
  return {
    cert: certificate.toString("pem"),
    key: KeyObject.from(keys.privateKey).export({ type: "pkcs8", format: "pem" }).toString(),
  };
}
