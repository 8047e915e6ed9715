import { formatTarget, type Target } from "../address/target.ts";
import { RouteFault, type RouteFaultCode } from "./fault.ts";
import { formatProxy, type ProxyRoute } from "./proxy-route.ts";

/** What ended an attempt, as a fault; what is none and came without an abort is a mistake of ours, and thrown on. */
export function toRouteFault(error: unknown, way: ProxyRoute, to: Target, signal: AbortSignal): RouteFault {
  if (error instanceof RouteFault) return error;
  const at = way.kind === "direct" ? formatTarget(to) : formatProxy(way.proxy);
  if (signal.aborted) return new RouteFault("timeout", `${at} gave no connection in time`, { at, cause: error });
  throw error;
}

/** From what says most to what says least: a proxy that answered knows more than a network that did not. */
const TELLING: readonly RouteFaultCode[] = [
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
export function combineFaults(faults: readonly RouteFault[]): RouteFault {
  const [first, ...others] = faults.toSorted((one, other) => TELLING.indexOf(one.fault) - TELLING.indexOf(other.fault));
  if (first === undefined) throw new Error("no way was tried");
  if (others.length === 0) return first;
  return new RouteFault(first.fault, faults.map(({ message }) => message).join("; "), {
    at: first.at,
    ...(first.retryAfterMs === undefined ? {} : { retryAfterMs: first.retryAfterMs }),
    cause: first,
  });
}
