import { getCiphers } from "node:tls";
import { nearest } from "../basics/text.ts";

const TLS13_SUITES = ["TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256"];

/** Go's names, as `--cipher-suites` of Konnectivity takes them, to OpenSSL's. */
const OPENSSL_NAMES: Readonly<Record<string, string>> = {
  TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256: "ECDHE-ECDSA-AES128-GCM-SHA256",
  TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384: "ECDHE-ECDSA-AES256-GCM-SHA384",
  TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305: "ECDHE-ECDSA-CHACHA20-POLY1305",
  TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256: "ECDHE-ECDSA-CHACHA20-POLY1305",
  TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256: "ECDHE-RSA-AES128-GCM-SHA256",
  TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384: "ECDHE-RSA-AES256-GCM-SHA384",
  TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305: "ECDHE-RSA-CHACHA20-POLY1305",
  TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256: "ECDHE-RSA-CHACHA20-POLY1305",
  TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA: "ECDHE-ECDSA-AES128-SHA",
  TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA: "ECDHE-ECDSA-AES256-SHA",
  TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA: "ECDHE-RSA-AES128-SHA",
  TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA: "ECDHE-RSA-AES256-SHA",
  TLS_RSA_WITH_AES_128_GCM_SHA256: "AES128-GCM-SHA256",
  TLS_RSA_WITH_AES_256_GCM_SHA384: "AES256-GCM-SHA384",
};

/** One suite by Go's or OpenSSL's name, as OpenSSL's. */
export function cipherSuite(text: string): string {
  const name = text.trim();
  if (TLS13_SUITES.includes(name)) return name;
  const openssl = OPENSSL_NAMES[name] ?? name;
  // getCiphers is lower case; anything else in an OpenSSL cipher string (`!`, `@SECLEVEL`) is a rule, no suite.
  if (/^[A-Z0-9-]+$/.test(openssl) && getCiphers().includes(openssl.toLowerCase())) return openssl;
  const guess = nearest(name, [...Object.keys(OPENSSL_NAMES), ...TLS13_SUITES]);
  throw new Error(
    `names no cipher suite of this build: ${JSON.stringify(name.slice(0, 60))}${guess === undefined ? "" : `; did you mean ${guess}?`}`,
  );
}

/**
 * Suites as the `ciphers` of Node's TLS. As in Go, the list says nothing about TLS 1.3 unless it names
 * a suite of it; Node would take the absence of such a suite as "no TLS 1.3".
 */
export function cipherList(suites: readonly string[]): string {
  if (suites.length === 0) return "";
  const modern = suites.some((suite) => TLS13_SUITES.includes(suite)) ? [] : TLS13_SUITES;
  return [...modern, ...suites].join(":");
}

export const TLS_VERSIONS = ["TLSv1.2", "TLSv1.3"] as const;

/** Go's spelling of a TLS version (`VersionTLS12`), or OpenSSL's, as OpenSSL's. */
export function tlsVersion(text: string): string {
  const match = /^(?:VersionTLS|TLSv|TLS)?1\.?([0-3])$/.exec(text);
  if (match?.[1] === "0" || match?.[1] === "1") {
    throw new Error("asks for TLS 1.0 or 1.1, which are not offered (RFC 8996); use VersionTLS12 or VersionTLS13");
  }
  // Empty means the default, as with Konnectivity.
  if (text === "") return "TLSv1.2";
  return match === null ? text : `TLSv1.${match[1]}`;
}
