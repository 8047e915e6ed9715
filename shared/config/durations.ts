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
