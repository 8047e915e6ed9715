import { BASIC } from "./basic.ts";
import type { Challenge } from "./challenges.ts";
import { DIGEST } from "./digest.ts";
import { NEGOTIATE } from "./negotiate.ts";
import type { AuthScheme } from "./scheme.ts";

/**
 * All authentication schemes, strongest first. `Authentication` uses the first one that the proxy offers and that this
 * process has credentials for. A new scheme is a file beside this one that exports an `AuthScheme`, a row here, its
 * test, a row of `OFFERS` in `proxy-routes-unverified.test.ts`, and a seed in `fuzz/targets/digest.ts`. The login of
 * SOCKS is in `socks-proxy.ts`.
 */
export const SCHEMES: readonly AuthScheme[] = [NEGOTIATE, DIGEST, BASIC];

/** What to do about schemes that are not implemented, by name in lower case. */
const WORKAROUNDS = new Map([["ntlm", "for NTLM let px or cntlm run on this machine and name that with --proxy"]]);

const NAMES = new Map([...SCHEMES.map(({ name }) => name), "NTLM"].map((name) => [name.toLowerCase(), name]));
const MAX_NAMED = 6;
const MAX_NAME = 20;

/**
 * The schemes that a proxy offers, for a sentence. Names come from the proxy, so their number and length are limited.
 */
export function offeredSchemes(challenges: readonly Challenge[]): string {
  const names = [...new Set(challenges.map(({ scheme }) => NAMES.get(scheme) ?? scheme.slice(0, MAX_NAME)))];
  return names.length === 0 ? "none that can be read" : names.slice(0, MAX_NAMED).join(", ");
}

/** Why none of the offered schemes can be used, and what to do. */
export function unusableSchemes(challenges: readonly Challenge[]): readonly string[] {
  const offered = new Set(challenges.map(({ scheme }) => scheme));
  const reasons = SCHEMES.map((scheme) => scheme.whyNot?.(challenges));
  const workarounds = [...WORKAROUNDS].map(([scheme, workaround]) => (offered.has(scheme) ? workaround : undefined));
  return [...reasons, ...workarounds].filter((reason) => reason !== undefined);
}
