import { getCiphers } from "node:tls";
import { nearest } from "../basics/text.ts";

/**
 * Durations in Go's syntax and sizes with KiB/MiB (design: "Configuration"), so that values can be
 * copied from a Konnectivity manifest. Pure: text in, milliseconds or bytes out.
 */

const UNIT_MS: Readonly<Record<string, number>> = {
  ns: 1e-6,
  us: 1e-3,
  µs: 1e-3, // U+00B5, the micro sign
  μs: 1e-3, // U+03BC, the Greek letter: Go takes both
  ms: 1,
  s: 1_000,
  m: 60_000,
  h: 3_600_000,
};

/** The longest delay a Node timer takes; a longer one would fire at once. */
export const MAX_DURATION_MS = 2_147_483_647;

const DURATION = /^(?:(?:\d+(?:\.\d*)?|\.\d+)(?:ns|us|µs|μs|ms|s|m|h))+$/;
const DURATION_PART = /(\d+(?:\.\d*)?|\.\d+)(ns|us|µs|μs|ms|s|m|h)/g;

/** Milliseconds of a duration such as `1h30m` or `500ms` (syntax of Go's time.ParseDuration, without a sign). */
export function parseDuration(text: string): number {
  const trimmed = text.trim();
  if (trimmed === "0") return 0;
  if (/^-[.\d]/.test(trimmed)) throw new Error(`must not be negative: a duration such as 8s, not ${quoted(text)}`);
  if (trimmed.length > 64 || !DURATION.test(trimmed)) {
    throw new Error(`needs a duration with its unit, such as 500ms, 8s or 1h30m, not ${quoted(text)}`);
  }
  let total = 0;
  for (const [, number, unit] of trimmed.matchAll(DURATION_PART)) {
    total += Number(number) * (UNIT_MS[unit as string] as number);
  }
  if (total > MAX_DURATION_MS) throw new Error(`is longer than a timer can wait (596h): ${quoted(text)}`);
  // Sums of decimal fractions carry dust far below a nanosecond.
  return Math.round(total * 1e6) / 1e6;
}

/** The shortest usual spelling of a duration; `parseDuration` reads it back to the same number. */
export function formatDuration(ms: number): string {
  if (ms === 0) return "0s";
  let rest = ms;
  let text = "";
  for (const [unit, size] of [
    ["h", 3_600_000],
    ["m", 60_000],
    ["s", 1_000],
  ] as const) {
    const count = Math.floor(rest / size);
    if (count > 0) {
      text += `${count}${unit}`;
      rest -= count * size;
    }
  }
  if (rest > 0) text += `${rest}ms`;
  return text;
}

const UNIT_BYTES: Readonly<Record<string, number>> = {
  "": 1,
  B: 1,
  Ki: 1_024,
  KiB: 1_024,
  Mi: 1_048_576,
  MiB: 1_048_576,
  Gi: 1_073_741_824,
  GiB: 1_073_741_824,
};

/** Bytes of a size such as `64KiB`, `1.5MiB` or `4096`; `Ki`, `Mi`, `Gi` as in Kubernetes quantities are understood. */
export function parseSize(text: string): number {
  if (/^-[.\d]/.test(text.trim())) throw new Error(`must not be negative: a size such as 64KiB, not ${quoted(text)}`);
  const match = text.length <= 32 ? /^(\d+(?:\.\d+)?)\s*([A-Za-z]*)$/.exec(text.trim()) : null;
  const unit = match === null ? undefined : UNIT_BYTES[match[2] as string];
  if (match === null || unit === undefined) {
    throw new Error(`needs a size in bytes, KiB, MiB or GiB, such as 64KiB, not ${quoted(text)}`);
  }
  const bytes = Number(match[1]) * unit;
  if (!Number.isSafeInteger(bytes)) throw new Error(`is not a whole number of bytes: ${quoted(text)}`);
  return bytes;
}

/** The largest unit that divides the size; `parseSize` reads it back to the same number. */
export function formatSize(bytes: number): string {
  for (const unit of ["GiB", "MiB", "KiB"]) {
    const size = UNIT_BYTES[unit] as number;
    if (bytes >= size && bytes % size === 0) return `${bytes / size}${unit}`;
  }
  return `${bytes}B`;
}

function quoted(text: string): string {
  return JSON.stringify(text.length <= 40 ? text : `${text.slice(0, 37)}...`);
}

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
