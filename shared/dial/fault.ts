import { DialFault } from "../faults/faults.ts";

/** All faults of a proxy route, the most informative first: a proxy that answered knows more than a silent network. */
const BY_INFORMATION = [
  // The PAC script cannot be read, or gives no answer.
  "pac",
  // The proxy answered.
  "proxy_auth_refused",
  "proxy_auth_unsupported",
  "proxy_auth_required",
  // The proxy asks for credentials and gets none, because its route is unverified.
  "proxy_auth_withheld",
  "proxy_tls",
  // A captive portal. A web page in answer to the WebSocket upgrade has the same label.
  "web_page",
  "proxy_forbidden",
  "proxy_protocol",
  "proxy_unavailable",
  "proxy_closed",
  // The network, on the way to the server or to a proxy.
  "refused",
  "closed",
  "unreachable",
  "dns",
  "timeout",
] as const;

/** What prevents a connection through a proxy route: a label for metrics and the doctor. The message is for people. */
export type RouteFaultCode = (typeof BY_INFORMATION)[number];

/** A proxy route gave no connection to its target. */
export class RouteFault extends DialFault {
  declare readonly fault: RouteFaultCode;

  /** The party at fault: the target (`formatTarget`), a proxy (`formatProxy`), or a file. */
  get at(): string {
    return this.facts.by;
  }

  /** `message` is a sentence that names the culprit and a cure, without secrets. */
  constructor(
    fault: RouteFaultCode,
    message: string,
    { at, retryAfterMs, cause }: { readonly at: string; readonly retryAfterMs?: number; readonly cause?: unknown },
  ) {
    super(fault, message, { facts: { by: at }, retryAfterMs, cause });
  }
}

/** A file of the agent for its proxies cannot be used. The network is not at fault. */
export class ProxyFileFault extends RouteFault {}

/** The attempt timed out while Kerberos asked its KDC for a ticket. The proxy had answered. */
export class KdcTimeout extends RouteFault {}

/** One fault for all routes that were tried: the most informative one, with the messages of all. */
export function combineFaults(faults: readonly RouteFault[]): RouteFault {
  const rank = ({ fault }: RouteFault): number => BY_INFORMATION.indexOf(fault);
  const [first, ...others] = faults.toSorted((one, other) => rank(one) - rank(other));
  if (first === undefined) throw new Error("no proxy route was tried");
  if (others.length === 0) return first;
  return new RouteFault(first.fault, faults.map(({ message }) => message).join("; "), {
    at: first.at,
    ...(first.retryAfterMs === undefined ? {} : { retryAfterMs: first.retryAfterMs }),
    cause: first,
  });
}
