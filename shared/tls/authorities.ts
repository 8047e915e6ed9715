import { X509Certificate } from "node:crypto";
import tls from "node:tls";
import { readBoundedSync } from "../documents/read-bounded.ts";
import { isSignedBy, publicKeyOf } from "./certificate-fields.ts";

/** Node.js 22.15 and newer list CAs by their origin. */
const { getCACertificates } = tls as { getCACertificates?: (type: "default" | "system") => readonly string[] };

let defaults: readonly string[] | undefined;
let installed: readonly X509Certificate[] | undefined;

/**
 * The CAs that TLS trusts by default, PEM. An option `ca` replaces them, so whoever adds a CA passes these too. Node.js
 * 20 lists only its own; the file in NODE_EXTRA_CA_CERTS, which company images set, is read here once, as Node does.
 */
export function wellKnownAuthorities(): readonly string[] {
  defaults ??= getCACertificates?.("default") ?? [
    ...tls.rootCertificates,
    ...extraAuthorities(process.env["NODE_EXTRA_CA_CERTS"]),
  ];
  return defaults;
}

/**
 * The certificates in a file of extra CAs. Node warns at its start about a file that cannot be read; here it is empty.
 */
export function extraAuthorities(path = ""): string[] {
  if (path === "") return [];
  try {
    const blocks = readBoundedSync(path).toString("latin1").match(BLOCK) ?? [];
    return blocks.filter(isCertificate);
  } catch {
    return [];
  }
}

const BLOCK = /-----BEGIN CERTIFICATE-----[^-]+-----END CERTIFICATE-----/g;

/** With a damaged certificate in its list, TLS would trust none of the others. */
function isCertificate(pem: string): boolean {
  try {
    return new X509Certificate(pem).raw.length > 0;
  } catch {
    return false;
  }
}

/**
 * Whether a CA that was installed on this machine has signed the certificate, as companies install that of their TLS
 * inspection. The CAs that Node.js brings do not count.
 */
export function isInstalled(certificate: X509Certificate): boolean {
  installed ??= withoutBuiltIn([...wellKnownAuthorities(), ...(getCACertificates?.("system") ?? [])]);
  return signs(installed, certificate);
}

/** Whether one of these CAs has signed the certificate: by its name, and by the signature. */
export function signs(authorities: readonly X509Certificate[], certificate: X509Certificate): boolean {
  return authorities.some((ca) => ca.subject === certificate.issuer && isSignedBy(certificate, ca));
}

/** By name and key: a system often has an older certificate of a CA that Node.js brings as well. */
function withoutBuiltIn(pems: readonly string[]): X509Certificate[] {
  const builtIn = new Set(tls.rootCertificates.map((pem) => nameAndKey(new X509Certificate(pem))));
  return pems.map((pem) => new X509Certificate(pem)).filter((ca) => !builtIn.has(nameAndKey(ca)));
}

function nameAndKey({ subject, raw, fingerprint256 }: X509Certificate): string {
  try {
    return `${subject}\n${publicKeyOf(raw).toString("base64")}`;
  } catch {
    return fingerprint256; // not DER, although OpenSSL accepts it
  }
}
