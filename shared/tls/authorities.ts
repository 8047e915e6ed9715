import { X509Certificate } from "node:crypto";
import tls from "node:tls";
import { getOrMake, RecentMap } from "../basics/collections.ts";
import { readBoundedSync } from "../documents/read-bounded.ts";
import { printable } from "../outcomes.ts";
import {
  blocksIn,
  certificates,
  isSelfSigned,
  isSignedBy,
  mayBeTrusted,
  mayHaveSigned,
  publicKeyOf,
  sha256,
} from "./certificate-fields.ts";

// ── the CAs of this machine ──────────────────────────────────────────────────────────────────────────────────────────

/** Node.js 22.15 and newer list CAs by their origin. */
const { getCACertificates } = tls as { getCACertificates?: (type: "default" | "system") => readonly string[] };

let defaults: ReadonlySet<string> | undefined;
let installed: readonly X509Certificate[] | undefined;

/**
 * The CAs that TLS trusts by default, PEM. An option `ca` replaces them, so code that adds a CA passes these, too.
 * Node.js 20 lists only its own; the file in NODE_EXTRA_CA_CERTS, which company images set, is read here once, as Node
 * does.
 */
export function wellKnownAuthorities(): readonly string[] {
  return [...wellKnown()];
}

function wellKnown(): ReadonlySet<string> {
  defaults ??= new Set(
    (
      getCACertificates?.("default") ?? [
        ...tls.rootCertificates,
        ...extraAuthorities(process.env["NODE_EXTRA_CA_CERTS"]),
      ]
    ).filter(isTrustedByDefault),
  );
  return defaults;
}

/** Node.js brings only CAs; what an administrator has added may be a leaf (`trustIn`). */
function isTrustedByDefault(pem: string): boolean {
  return builtIn.has(pem) || mayBeTrusted(new X509Certificate(pem));
}

const builtIn = new Set(tls.rootCertificates);

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

function nameAndKey({ subject, raw }: X509Certificate): string {
  return `${subject}\n${keyOf(raw)}`;
}

// ── the CAs of a bundle ──────────────────────────────────────────────────────────────────────────────────────────────

/**
 * By the hash of their text, as many as clusters that one server is made for: each bundle is loaded, compared with the
 * others and asked for its end, and parsing a certificate takes 0.1 ms.
 */
const recent = new RecentMap<string, readonly BundledCa[]>(1_024);

/** The CAs of a bundle (PEM). Throws Node's error for one that is damaged. */
export function authoritiesOf(pem: string): readonly BundledCa[] {
  return getOrMake(recent, sha256(pem), () => certificates(pem).map((certificate) => new BundledCa(certificate)));
}

/**
 * TLS options by which the CAs of these bundles (PEM) are trusted, an issuing CA without its root too, as Go, curl and
 * kubectl do. With that option OpenSSL would also trust a leaf for itself, so leaves are left out. Absent: Node's own
 * CAs are trusted; empty: none is. See docs/decisions/0045.
 */
export function trustIn(ca: string | readonly string[] | undefined): TrustOptions {
  if (ca === undefined) return {};
  return {
    ca: [ca]
      .flat()
      .map(withoutLeaves)
      .filter((pem) => pem !== ""),
    allowPartialTrustChain: true,
  };
}

interface TrustOptions {
  readonly ca?: string[];
  readonly allowPartialTrustChain?: true;
}

/** The certificates of a bundle that may be trusted: mostly the bundle itself. */
export function withoutLeaves(pem: string): string {
  if (defaults?.has(pem) || authoritiesOf(pem).every(({ isLeaf }) => !isLeaf)) return pem;
  return blocksIn(pem)
    .filter((block) => mayBeTrusted(new X509Certificate(block)))
    .join("\n");
}

/** The names of the certificates in a bundle that are no CA, and that nothing can be verified by. */
export function leavesIn(pem: string): string[] {
  if (authoritiesOf(pem).every(({ isLeaf }) => !isLeaf)) return [];
  return certificates(pem)
    .filter((certificate) => !mayBeTrusted(certificate))
    .map(({ subject }) => printable(subject?.replaceAll("\n", ", ") ?? "", 60));
}

/** The facts of a CA certificate that are used after it was loaded; the parsed certificate takes several KiB. */
export class BundledCa {
  /** Hash of its public key, which survives a renewal with the same key and every spelling of the PEM text. */
  readonly key: string;
  /** Distinguished names as OpenSSL compares them: without case and runs of spaces. */
  readonly subject: string;
  readonly issuer: string;
  /** No other CA has signed it. */
  readonly isSelfSigned: boolean;
  /** It is no CA, and is not trusted. */
  readonly isLeaf: boolean;
  readonly notBefore: Date;
  readonly notAfter: Date;
  /** DER. */
  readonly #raw: Buffer;
  /** Whether the CA of a key has signed it. Verifying takes 100 µs, and a thousand bundles may hold one root. */
  #signers: Map<string, boolean> | undefined;

  constructor(certificate: X509Certificate) {
    this.#raw = certificate.raw;
    this.key = keyOf(this.#raw);
    this.subject = folded(certificate.subject);
    this.issuer = folded(certificate.issuer);
    this.isSelfSigned = isSelfSigned(certificate);
    this.isLeaf = !mayBeTrusted(certificate);
    this.notBefore = new Date(certificate.validFrom);
    this.notAfter = new Date(certificate.validTo);
  }

  /** Whether one certificate may be verified by both. */
  overlaps(other: BundledCa): boolean {
    return this.key === other.key || this.#isSignedBy(other) || other.#isSignedBy(this);
  }

  #isSignedBy(other: BundledCa): boolean {
    if (this.issuer !== other.subject || this.isSelfSigned) return false;
    this.#signers ??= new Map();
    return getOrMake(this.#signers, other.key, () => mayHaveSigned(other.#certificate(), this.#certificate()));
  }

  #certificate(): X509Certificate {
    return new X509Certificate(this.#raw);
  }
}

function folded(name: string): string {
  return name.toLowerCase().replace(/[^\S\n]+/g, " ");
}

/** A hash of the public key. */
function keyOf(raw: Buffer): string {
  try {
    return sha256(publicKeyOf(raw));
  } catch {
    return sha256(raw); // OpenSSL accepts certificates that are not quite DER
  }
}
