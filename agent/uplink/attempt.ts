import { Intercepted } from "../../shared/link/intercepted.ts";
import type { Connection, ConnectionOwner } from "./connection.ts";
import { outside } from "./outside.ts";
import type { Reach } from "./reach.ts";
import { throughBox } from "./through-box.ts";

/**
 * One try of an uplink: credentials, way out → TLS → upgrade → hello → welcome, link, session. Somebody who ends TLS on the
 * way, and may, is met by inner TLS.
 */
export async function attempt(reach: Reach, owner: ConnectionOwner, signal: AbortSignal): Promise<Connection> {
  const { innerTls, path, timeoutMs } = reach;
  if (innerTls === "always") return throughBox(reach, owner, signal, timeoutMs);
  if (innerTls === "never") return outside(reach, owner, signal, timeoutMs);
  const until = performance.now() + timeoutMs;
  const leftMs = () => Math.max(1, until - performance.now());
  // First what worked last: an attempt that is in vain costs a handshake.
  const mayBeBoxed = reach.credentials.current().outerCa !== undefined;
  const [first, second] = path.intercepted && mayBeBoxed ? [throughBox, outside] : [outside, throughBox];
  try {
    return await first(reach, owner, signal, leftMs());
  } catch (error) {
    if (!(error instanceof Intercepted)) throw error;
    path.intercepted = first === outside;
    if (!mayBeBoxed) throw error;
    return second(reach, owner, signal, leftMs());
  }
}
