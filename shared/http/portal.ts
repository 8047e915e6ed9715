import { printable } from "../outcomes.ts";

/**
 * A proxy that shows a page of its own in place of what is asked for. It may do so in more than one way; whoever meets it says
 * the same.
 */
export function portalAt(proxy: string): string {
  return `the proxy ${proxy} shows a web page in place of the server, most likely a login (a captive portal)`;
}

/** It has said that this is the way to the server, and may have told the truth: bytes that are no TLS tell nobody's name. */
export function noTlsBehind(proxy: string): string {
  return `the proxy ${proxy} has opened the connection, and what answers there speaks no TLS: the port in --server may be a wrong one, or the proxy shows a page of its own (a login)`;
}

export const PORTAL_CURE =
  "log in from this machine with a browser that goes through it, or ask its administrators to let this machine pass without";

/**
 * Where a redirection leads, for a log or a sentence: origin and path. What stands beside and behind them names sessions,
 * devices and people.
 */
export function placeOf(location: string): string {
  return printable(location.replace(/[?#;].*$/s, "").replace(/^([a-z][a-z\d+.-]*:)?\/\/[^/]*@/i, "$1//"), 120);
}
