import "../../shared/pki/reflect.ts"; // must come before @peculiar/x509
import { KeyObject } from "node:crypto";
import * as x509 from "@peculiar/x509";
import type { CertificateAndKey } from "../../shared/pki/certificates.ts";

const P256 = { name: "ECDSA", namedCurve: "P-256", hash: "SHA-256" } as const;
const DAY = 86_400_000;

/** A self-signed certificate of localhost for targets and raw relays: it is its own CA (RFC 5280 §4.1). */
export async function selfSigned(): Promise<CertificateAndKey> {
  const keys = await crypto.subtle.generateKey(P256, true, ["sign", "verify"]);
  const certificate = await x509.X509CertificateGenerator.createSelfSigned({
    name: "CN=localhost",
    notBefore: new Date(Date.now() - DAY),
    notAfter: new Date(Date.now() + 30 * DAY),
    signingAlgorithm: P256,
    keys,
    extensions: [
      new x509.BasicConstraintsExtension(true),
      new x509.SubjectAlternativeNameExtension([
        { type: "dns", value: "localhost" },
        { type: "ip", value: "127.0.0.1" },
      ]),
    ],
  });
  const key = KeyObject.from(keys.privateKey).export({ type: "pkcs8", format: "pem" });
  return { cert: certificate.toString("pem"), key: key.toString() };
}
