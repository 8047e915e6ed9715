import { type CredentialFault, credentialFault, printable } from "../outcomes.ts";

const NAME = "culvert";
const FIRST_MEMBER = new RegExp(`^\\s*${NAME}\\s*(?:[;,]|$)`);

/** What `Proxy-Status` says beside the sentence: a type of RFC 9209 §2.3, and parameters of our own. */
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
