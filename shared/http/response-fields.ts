import { type CredentialFault, credentialFault, printable } from "../outcomes.ts";

/** `Proxy-Status` (RFC 9209), by which whoever was refused tells our no from that of somebody on the way. */

const NAME = "culvert";

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

/** Is it our answer? §2: the first member is who stands nearest to the origin; those on the way put theirs behind it. */
export function isOurs(field: string | readonly string[] | undefined): boolean {
  return FIRST_MEMBER.test(String(field ?? ""));
}

const FIRST_MEMBER = new RegExp(`^\\s*${NAME}\\s*(?:[;,]|$)`);
