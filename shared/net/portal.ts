/**
 * A proxy that shows a page of its own in place of what is asked for. It may do so in more than one way; whoever meets it says
 * the same.
 */
export function portalAt(proxy: string): string {
  return `the proxy ${proxy} shows a web page in place of the server, most likely a login (a captive portal)`;
}

export const PORTAL_CURE =
  "log in from this machine with a browser that goes through it, or ask its administrators to let this machine pass without";
