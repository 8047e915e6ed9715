import { type CredentialFault, credentialFault, printable } from "../outcomes.ts";

const NAME = "culvert";
const FIRST_MEMBER = new RegExp(`^\\s*${NAME}\\s*(?:[;,]|$)`);

/** The fields of `Proxy-Status` beside the sentence: a type of RFC 9209 §2.3, and parameters of our own. */
export interface ProxyStatus {
  readonly error: string;
  readonly fault?: CredentialFault | undefined;
  readonly refusedBy?: "agent" | undefined;
}

/** The sentence becomes `details`, a string of RFC 8941 in which nothing needs an escape. */
export function proxyStatus({ error, fault, refusedBy }: ProxyStatus, sentence: string): string {
  const own = `${fault === undefined ? "" : `; fault=${fault}`}${refusedBy === undefined ? "" : `; refused-by=${refusedBy}`}`;
  return `${NAME}; error=${error}${own}; details="${printable(sentence).replace(/[\\"]/g, "'")}"`;
}

/** The credential fault in our member of the field. Our own strings hold no quote, so `details` is easy to remove. */
export function faultIn(field: string | readonly string[] | undefined): CredentialFault | undefined {
  if (!isOurs(field)) return undefined;
  const [parameters = ""] = String(field)
    .replace(/"[^"]*"/g, "")
    .split(",");
  return credentialFault(/;\s*fault=([a-z_]+)/.exec(parameters)?.[1]);
}

/** Is this our answer? The first member of the field is the one nearest to the origin (RFC 9209 §2). */
export function isOurs(field: string | readonly string[] | undefined): boolean {
  return FIRST_MEMBER.test(String(field ?? ""));
}

/** `Retry-After` (RFC 9110 §10.2.3: seconds or a date) as ms from now; `undefined` if it is absent or invalid. */
export function parseRetryAfter(field: string | undefined): number | undefined {
  if (field === undefined) return undefined;
  const ms = /^\d+$/.test(field) ? Number(field) * 1_000 : Date.parse(field) - Date.now();
  return Number.isFinite(ms) ? Math.max(0, ms) : undefined;
}

/**
 * `Location` for a log or a sentence: origin and path. The user information and the query may identify sessions,
 * devices and people.
 */
export function printableLocation(location: string): string {
  return printable(location.replace(/[?#;].*$/s, "").replace(/^([a-z][a-z\d+.-]*:)?\/\/[^/]*@/i, "$1//"), 120);
}

/** Certificates and tokens forgive less. */
export const CLOCK_TOLERANCE_MS = 5 * 60_000;

/** `1 day 2 h ahead of the server's`: two units, as exact as anybody needs it. `ms`: how far this machine is ahead. */
export function ahead(ms: number): string {
  const size = Math.abs(ms);
  if (size < 2_000) return "the same as the server's";
  return `${duration(size)} ${ms > 0 ? "ahead of" : "behind"} the server's`;
}

/** The note about the clocks where an answer with this Date (RFC 9110 §6.6.1) refuses us; "" where they agree. */
export function clockNote(date: string | undefined, now: number): string {
  const aheadMs = now - Date.parse(date ?? "");
  return Math.abs(aheadMs) > CLOCK_TOLERANCE_MS ? `; this machine's clock is ${ahead(aheadMs)}` : "";
}

const UNITS = [
  ["day", 86_400_000],
  ["h", 3_600_000],
  ["min", 60_000],
  ["s", 1_000],
] as const;

function duration(ms: number): string {
  const first = UNITS.findIndex(([, size]) => ms >= size);
  let rest = ms;
  const words: string[] = [];
  for (const [unit, size] of UNITS.slice(first, first + 2)) {
    const count = Math.floor(rest / size);
    rest -= count * size;
    if (count > 0) words.push(`${count} ${unit}${unit === "day" && count > 1 ? "s" : ""}`);
  }
  return words.join(" ");
}
