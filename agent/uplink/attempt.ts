import type { Connection, ConnectionOwner } from "./connection.ts";
import { outside } from "./outside.ts";
import type { Reach } from "./reach.ts";
import { dialEnds } from "./tls-terminator.ts";
import { throughBox } from "./via-middlebox.ts";

/**
 * One try of an uplink: credentials, way out → TLS → upgrade → hello → welcome, link, session. Somebody who ends TLS on the
 * way, and may, is met by inner TLS.
 */
export async function attempt(reach: Reach, owner: ConnectionOwner, signal: AbortSignal): Promise<Connection> {
  const { path } = reach;
  const until = performance.now() + reach.timeoutMs;
  const credentials = reach.credentials.current();
  return await dialEnds(
    reach,
    credentials,
    (end) => {
      const terms = { credentials, timeoutMs: Math.max(1, until - performance.now()), signal };
      return end === "server" ? outside(reach, owner, terms) : throughBox(reach, owner, terms);
    },
    (end) => {
      path.intercepted = end === "server";
    },
  );
}
