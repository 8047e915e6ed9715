import "../reflect.ts"; // must come before @peculiar/x509
import { generateKeyPairSync, randomBytes, type webcrypto } from "node:crypto";
import * as x509 from "@peculiar/x509";
import type { CertificateAndKey } from "../certificates.ts";

const ALGORITHM = { name: "RSASSA-PKCS1-v1_5", hash: "SHA-256" } as const;

/**
 * Makes a chain of `length` certificates whose signatures are slow to verify. Their RSA keys have a public exponent as
 * long as the modulus: 3,072 bits, the maximum that OpenSSL allows for such an exponent. Signing with them is cheap.
 * The last certificate is a self-signed CA (`isWhole`), or is signed by a CA that is not in the chain.
 */
export async function slowChain(length: number, { isWhole = false } = {}): Promise<CertificateAndKey> {
  const keys = await Promise.all(Array.from({ length: length + 1 }, slowKeys));
  const keysOf = (index: number) => keys[index] as webcrypto.CryptoKeyPair;
  const issuerOf = (index: number) => (isWhole && index === length - 1 ? index : index + 1);
  const certificates = await Promise.all(
    Array.from({ length }, (_, index) =>
      x509.X509CertificateGenerator.create({
        subject: `CN=slow-${index}`,
        issuer: `CN=slow-${issuerOf(index)}`,
        signingAlgorithm: ALGORITHM,
        publicKey: keysOf(index).publicKey,
        signingKey: keysOf(issuerOf(index)).privateKey,
        extensions: index === 0 ? [] : [new x509.BasicConstraintsExtension(true, undefined, true)],
      }),
    ),
  );
  const key = await crypto.subtle.exportKey("pkcs8", keysOf(0).privateKey);
  return {
    cert: certificates.map((certificate) => certificate.toString("pem")).join("\n"),
    key: x509.PemConverter.encode(key, "PRIVATE KEY"),
  };
}

async function slowKeys(): Promise<webcrypto.CryptoKeyPair> {
  const usual = generateKeyPairSync("rsa", { modulusLength: 3_072 }).privateKey.export({ format: "jwk" });
  const [p, q] = [fromBase64(usual.p), fromBase64(usual.q)];
  const { d, e } = slowExponents((p - 1n) * (q - 1n));
  const { n = "", p: pText = "", q: qText = "", qi = "" } = usual;
  const own = { d: toBase64(d), p: pText, q: qText, qi, dp: toBase64(d % (p - 1n)), dq: toBase64(d % (q - 1n)) };
  const shown = { kty: "RSA", n, e: toBase64(e) };
  return {
    publicKey: await crypto.subtle.importKey("jwk", shown, ALGORITHM, true, ["verify"]),
    privateKey: await crypto.subtle.importKey("jwk", { ...shown, ...own }, ALGORITHM, true, ["sign"]),
  };
}

/** Chooses a short private exponent. The public exponent, its inverse modulo φ, is then as long as the modulus. */
function slowExponents(phi: bigint): { d: bigint; e: bigint } {
  for (;;) {
    const d = BigInt(`0x${randomBytes(128).toString("hex")}`) | 1n;
    const e = inverse(d, phi);
    if (e !== undefined) return { d, e };
  }
}

/** Modular inverse by the extended Euclidean algorithm; `undefined` if there is none. */
function inverse(of: bigint, modulus: bigint): bigint | undefined {
  let [a, b, x, y] = [modulus, of % modulus, 0n, 1n];
  while (b !== 0n) [a, b, x, y] = [b, a % b, y, x - (a / b) * y];
  return a === 1n ? ((x % modulus) + modulus) % modulus : undefined;
}

function fromBase64(text = ""): bigint {
  return BigInt(`0x${Buffer.from(text, "base64url").toString("hex")}`);
}

function toBase64(value: bigint): string {
  const hex = value.toString(16);
  return Buffer.from(hex.padStart(hex.length + (hex.length % 2), "0"), "hex").toString("base64url");
}
