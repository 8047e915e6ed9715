import { X509Certificate } from "node:crypto";
import tls from "node:tls";
import { readBoundedSync } from "../documents/read-bounded.ts";

/** In Node 22.15 and newer. */
const { getCACertificates } = tls as { getCACertificates?: (type: "default") => readonly string[] };

let known: readonly string[] | undefined;

/**
 * The CAs that TLS trusts where nobody names any, PEM: for whoever adds to them, since naming one leaves these out. Node 20
 * lists what it brings only; what NODE_EXTRA_CA_CERTS adds, as a company's own images do, is read once, as Node does.
 */
export function wellKnownAuthorities(): readonly string[] {
  known ??= getCACertificates?.("default") ?? [
    ...tls.rootCertificates,
    ...extraAuthorities(process.env["NODE_EXTRA_CA_CERTS"]),
  ];
  return known;
}

/** Node has warned at its start of a file that cannot be read, and goes on without. */
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

/** One that is damaged would take the others down with it. */
function isCertificate(pem: string): boolean {
  try {
    return new X509Certificate(pem).raw.length > 0;
  } catch {
    return false;
  }
}
