import { formatTarget } from "../address/target.ts";
import { type Fault, WayFault } from "./fault.ts";
import { type Destination, formatProxy, type Way } from "./proxy-route.ts";

/** What ended an attempt, as a fault; what is none and came without an abort is a mistake of ours, and thrown on. */
export function toWayFault(error: unknown, way: Way, to: Destination, signal: AbortSignal): WayFault {
  if (error instanceof WayFault) return error;
  const at = way.kind === "direct" ? formatTarget(to) : formatProxy(way.proxy);
  if (signal.aborted) return new WayFault("timeout", `${at} gave no connection in time`, { at, cause: error });
  throw error;
}

/** From what says most to what says least: a proxy that answered knows more than a network that did not. */
const TELLING: readonly Fault[] = [
  "proxy_auth_refused",
  "proxy_auth_unsupported",
  "proxy_auth_required",
  "proxy_auth_withheld",
  "proxy_tls",
  "web_page",
  "proxy_forbidden",
  "proxy_protocol",
  "proxy_unavailable",
  "proxy_closed",
  "refused",
  "closed",
  "unreachable",
  "dns",
  "timeout",
];

/** One fault for all ways that were tried: the one that tells most, in the words of all. */
export function unitedFault(faults: readonly WayFault[]): WayFault {
  const [first, ...others] = faults.toSorted((one, other) => TELLING.indexOf(one.fault) - TELLING.indexOf(other.fault));
  if (first === undefined) throw new Error("no way was tried");
  if (others.length === 0) return first;
  return new WayFault(first.fault, faults.map(({ message }) => message).join("; "), {
    at: first.at,
    ...(first.retryAfterMs === undefined ? {} : { retryAfterMs: first.retryAfterMs }),
    cause: first,
  });
}
