import "./reflect.ts"; // must come before @peculiar/x509
import { createPrivateKey, createPublicKey, KeyObject, randomBytes, type webcrypto } from "node:crypto";
import { isIP } from "node:net";
import * as x509 from "@peculiar/x509";

/** A certificate and its private key, both PEM. */
export interface CertificateAndKey {
  readonly cert: string;
  readonly key: string;
}

export interface LeafOptions {
  readonly cn: string | readonly string[];
  readonly o?: readonly string[];
  /** DNS names and IP addresses for the subjectAltName. */
  readonly names?: readonly string[];
  readonly uris?: readonly string[];
  readonly usage: "server" | "client" | "both";
  readonly notBefore?: Date;
  readonly notAfter?: Date;
}

const DAY = 86_400_000;
/** The clocks of two machines differ; a certificate is valid from this time, ms, before it is made. */
const CLOCK_SKEW = 300_000;
const P256 = { name: "ECDSA", namedCurve: "P-256", hash: "SHA-256" } as const;
const { serverAuth, clientAuth } = x509.ExtendedKeyUsage;
const EXTENDED_USAGES = { server: [serverAuth], client: [clientAuth], both: [serverAuth, clientAuth] };

/** A certificate authority in memory (RFC 5280 §4.2; ECDSA P-256, because it makes handshakes cheap). */
export class Authority {
  readonly cert: string;
  readonly key: string;
  readonly #issuer: x509.X509Certificate;
  readonly #keys: webcrypto.CryptoKeyPair;

  private constructor(issuer: x509.X509Certificate, keys: webcrypto.CryptoKeyPair) {
    this.#issuer = issuer;
    this.#keys = keys;
    this.cert = pem(issuer);
    this.key = pemOfKey(keys.privateKey);
  }

  static async create(cn: string, days = 365): Promise<Authority> {
    const keys = await newKeys();
    const certificate = await x509.X509CertificateGenerator.createSelfSigned({
      serialNumber: serialNumber(),
      name: [{ CN: [cn] }],
      notBefore: new Date(Date.now() - CLOCK_SKEW),
      notAfter: new Date(Date.now() + days * DAY),
      signingAlgorithm: P256,
      keys,
      extensions: [
        new x509.BasicConstraintsExtension(true, 0, true),
        new x509.KeyUsagesExtension(x509.KeyUsageFlags.keyCertSign | x509.KeyUsageFlags.cRLSign, true),
        await x509.SubjectKeyIdentifierExtension.create(keys.publicKey),
      ],
    });
    return new Authority(certificate, keys);
  }

  /** Loads an authority from its certificate and key. Throws if they are not of the kind that `create` makes. */
  static async load({ cert, key }: CertificateAndKey): Promise<Authority> {
    const certificate = new x509.X509Certificate(cert);
    const privateKey = createPrivateKey(key).export({ type: "pkcs8", format: "der" });
    const publicKey = createPublicKey(key).export({ type: "spki", format: "der" });
    if (!publicKey.equals(Buffer.from(certificate.publicKey.rawData))) {
      throw new Error("the private key does not belong to the certificate");
    }
    return new Authority(certificate, {
      privateKey: await crypto.subtle.importKey("pkcs8", privateKey, P256, true, ["sign"]),
      publicKey: await crypto.subtle.importKey("spki", publicKey, P256, true, ["verify"]),
    });
  }

  get notAfter(): Date {
    return this.#issuer.notAfter;
  }

  async issue(leaf: LeafOptions): Promise<CertificateAndKey> {
    const keys = await newKeys();
    const extensions: x509.Extension[] = [
      new x509.BasicConstraintsExtension(false, undefined, true),
      new x509.KeyUsagesExtension(x509.KeyUsageFlags.digitalSignature, true),
      new x509.ExtendedKeyUsageExtension(EXTENDED_USAGES[leaf.usage]),
      await x509.SubjectKeyIdentifierExtension.create(keys.publicKey),
      await x509.AuthorityKeyIdentifierExtension.create(this.#keys.publicKey),
    ];
    const names: x509.JsonGeneralNames = [
      ...(leaf.names ?? []).map((value) => ({ type: isIP(value) === 0 ? ("dns" as const) : ("ip" as const), value })),
      ...(leaf.uris ?? []).map((value) => ({ type: "url" as const, value })),
    ];
    if (names.length > 0) extensions.push(new x509.SubjectAlternativeNameExtension(names));
    const certificate = await x509.X509CertificateGenerator.create({
      serialNumber: serialNumber(),
      subject: [...(leaf.o ?? []).map((o) => ({ O: [o] })), ...[leaf.cn].flat().map((cn) => ({ CN: [cn] }))],
      issuer: this.#issuer.subjectName,
      notBefore: leaf.notBefore ?? new Date(Date.now() - CLOCK_SKEW),
      notAfter: leaf.notAfter ?? this.#issuer.notAfter,
      signingAlgorithm: P256,
      publicKey: keys.publicKey,
      signingKey: this.#keys.privateKey,
      extensions,
    });
    return { cert: pem(certificate), key: pemOfKey(keys.privateKey) };
  }
}

function newKeys(): Promise<webcrypto.CryptoKeyPair> {
  return crypto.subtle.generateKey(P256, true, ["sign", "verify"]) as Promise<webcrypto.CryptoKeyPair>;
}

/** A random serial number, positive and 16 bytes long (RFC 5280 §4.1.2.2). */
function serialNumber(): string {
  const serial = randomBytes(16);
  serial[0] = ((serial[0] ?? 0) & 0x3f) | 0x40;
  return serial.toString("hex");
}

function pem(certificate: x509.X509Certificate): string {
  return `${certificate.toString("pem").trimEnd()}\n`;
}

function pemOfKey(key: webcrypto.CryptoKey): string {
  return KeyObject.from(key).export({ type: "pkcs8", format: "pem" }).toString();
}
