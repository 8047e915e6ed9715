import { printable } from "../outcomes.ts";

/** `Proxy-Status` (RFC 9209), by which whoever was refused tells our no from that of somebody on the way. */

const NAME = "culvert";

/** `error`: a type of §2.3. The sentence becomes its `details`, a string of RFC 8941 in which nothing needs an escape. */
export function proxyStatus(error: string, sentence: string): string {
  return `${NAME}; error=${error}; details="${printable(sentence).replace(/[\\"]/g, "'")}"`;
}

/** Is it our answer? §2: the first member is who stands nearest to the origin; those on the way put theirs behind it. */
export function isOurs(field: string | readonly string[] | undefined): boolean {
  return FIRST_MEMBER.test(String(field ?? ""));
}

const FIRST_MEMBER = new RegExp(`^\\s*${NAME}\\s*(?:[;,]|$)`);
