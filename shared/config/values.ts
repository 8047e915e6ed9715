import { isIP } from "node:net";
import { getCiphers } from "node:tls";
import { goBoolean, nearest } from "../basics/text.ts";
import { MAX_TIMER_MS } from "../basics/timers.ts";

/**
 * How texts of flags, environment variables, configuration files and documents become values: one parser for each kind.
 * A parser throws an Error whose message continues the name of an option or the path of a key: `needs a whole number,
 * not "x"`.
 */

/** Limits of a number: milliseconds, bytes, or what is counted. */
export interface NumberRange {
  readonly min?: number;
  readonly max?: number;
  /** 0 is allowed below `min`: it means "off". */
  readonly orZero?: boolean;
}

/** `parse`, refusing numbers outside the range; `format` writes the limits in the message. */
export function inRange(
  parse: (text: string) => number,
  format: (value: number) => string,
  { min = 0, max = Number.MAX_SAFE_INTEGER, orZero = false }: NumberRange,
): (text: string) => number {
  return (text) => {
    const value = parse(text);
    if (orZero && value === 0) return value;
    if (value < min) throw new Error(`needs ${orZero ? "0, or " : ""}at least ${format(min)}, not ${quoted(text)}`);
    if (value > max) throw new Error(`takes at most ${format(max)}, not ${quoted(text)}`);
    return value;
  };
}

export function parseInteger(text: string): number {
  if (!/^-?\d{1,15}$/.test(text.trim())) throw new Error(`needs a whole number, not ${quoted(text)}`);
  return Number(text);
}

/** Accepts Go's spellings in any case. */
export function parseBoolean(text: string): boolean {
  const value = goBoolean(text.toLowerCase());
  if (value !== undefined) return value;
  throw new Error(`needs true or false, not ${quoted(text)}`);
}

export function parseOneOf<const V extends string>(values: readonly V[], text: string): V {
  const found = values.find((value) => value === text);
  if (found === undefined) throw new Error(`needs one of ${values.join(", ")}, not ${quoted(text)}`);
  return found;
}

/** Control bytes in a name or path are always a quoting accident, and would forge log lines. */
export function parseLine(text: string): string {
  // biome-ignore lint/suspicious/noControlCharactersInRegex: finding them is the point.
  if (/[\x00-\x1f\x7f]/.test(text)) throw new Error("must not contain line breaks or control characters");
  return text;
}

/** A host name or an IP address. A port after it is refused, since ports have options of their own. */
export function parseAddress(text: string): string {
  const address = text.replace(/^\[(.*)\]$/, "$1");
  if (isIP(address) !== 0 || /^[^\s/@:[\]]*$/.test(parseLine(address))) return address;
  throw new Error(`needs a host name or an IP address, without scheme and port, not ${quoted(text)}`);
}

export function parseIdentifier(text: string): string {
  if (!/^[A-Za-z0-9._:-]{0,128}$/.test(text)) throw new Error("needs at most 128 letters, digits and . _ : -");
  return text;
}

/** Permission bits in octal, such as `0660`. */
export function parseMode(text: string): number {
  if (!/^(0o)?[0-7]{3,4}$/.test(text)) throw new Error(`needs a mode in octal such as 0660, not ${quoted(text)}`);
  const mode = Number.parseInt(text.replace("0o", ""), 8);
  if (mode > 0o777) throw new Error(`takes permission bits only (at most 0777), not ${quoted(text)}`);
  return mode;
}

export function splitList(text: string, separator: string): string[] {
  return text
    .split(separator)
    .map((item) => item.trim())
    .filter((item) => item !== "");
}

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
  if (total > MAX_TIMER_MS) throw new Error(`is longer than a timer can wait (596h): ${quoted(text)}`);
  // Sums of decimal fractions have errors far below a nanosecond.
  return Math.round(total * 1e6) / 1e6;
}

/** The usual spelling of a duration; `parseDuration` returns the same number for it. */
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

/** A size in the largest unit that divides it; `parseSize` returns the same number for it. */
export function formatSize(bytes: number): string {
  for (const unit of ["GiB", "MiB", "KiB"]) {
    const size = UNIT_BYTES[unit] as number;
    if (bytes >= size && bytes % size === 0) return `${bytes / size}${unit}`;
  }
  return `${bytes}B`;
}

const TLS13_SUITES = ["TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256"];

/** Go's names, which `--cipher-suites` of Konnectivity has, to OpenSSL's. */
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

/** OpenSSL's name of a suite, from Go's name or OpenSSL's. */
export function cipherSuite(text: string): string {
  const name = text.trim();
  if (TLS13_SUITES.includes(name)) return name;
  const openssl = OPENSSL_NAMES[name] ?? name;
  // Names of getCiphers are in lower case. Other parts of an OpenSSL cipher string (`!`, `@SECLEVEL`) are rules, not
  // suites.
  if (/^[A-Z0-9-]+$/.test(openssl) && getCiphers().includes(openssl.toLowerCase())) return openssl;
  const guess = nearest(name, [...Object.keys(OPENSSL_NAMES), ...TLS13_SUITES]);
  throw new Error(
    `names no cipher suite of this build: ${JSON.stringify(name.slice(0, 60))}${guess === undefined ? "" : `; did you mean ${guess}?`}`,
  );
}

/**
 * Suites as the `ciphers` of Node's TLS. As in Go, a list without suites of TLS 1.3 does not switch TLS 1.3 off, which
 * it would do in Node.
 */
export function cipherList(suites: readonly string[]): string {
  if (suites.length === 0) return "";
  const modern = suites.some((suite) => TLS13_SUITES.includes(suite)) ? [] : TLS13_SUITES;
  return [...modern, ...suites].join(":");
}

export const TLS_VERSIONS = ["TLSv1.2", "TLSv1.3"] as const;

/** OpenSSL's name of a TLS version, from Go's (`VersionTLS12`) or OpenSSL's. */
export function tlsVersion(text: string): string {
  const match = /^(?:VersionTLS|TLSv|TLS)?1\.?([0-3])$/.exec(text);
  if (match?.[1] === "0" || match?.[1] === "1") {
    throw new Error("asks for TLS 1.0 or 1.1, which are not offered (RFC 8996); use VersionTLS12 or VersionTLS13");
  }
  // As with Konnectivity, empty is the default.
  if (text === "") return "TLSv1.2";
  return match === null ? text : `TLSv1.${match[1]}`;
}

function quoted(text: string): string {
  return JSON.stringify(text.length <= 60 ? text : `${text.slice(0, 57)}...`);
}
