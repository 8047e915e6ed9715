import { DialFault } from "../faults/faults.ts";

/** Who stands in the way, and how: one word for metrics and the doctor, the message for people. */
export type RouteFaultCode =
  // The network, on the way to the server or to a proxy.
  | "dns"
  | "refused"
  | "unreachable"
  | "timeout"
  | "closed"
  // The PAC script cannot be read, or gives no answer.
  | "pac"
  // The proxy answered.
  | "proxy_auth_required"
  | "proxy_auth_refused"
  | "proxy_auth_unsupported"
  // The proxy asks for credentials and gets none, because its route is unverified.
  | "proxy_auth_withheld"
  | "proxy_closed"
  | "proxy_forbidden"
  | "proxy_unavailable"
  // A captive portal. A web page in answer to the WebSocket upgrade has the same label.
  | "web_page"
  | "proxy_tls"
  | "proxy_protocol";

/** A route that did not lead to its destination. */
export class RouteFault extends DialFault {
  declare readonly fault: RouteFaultCode;

  /** The destination itself, or the proxy (`formatProxy`). */
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

/** A file of the agent for its proxies cannot be used: nothing of the network is at fault. */
export class ProxyFileFault extends RouteFault {}

/** The time was over while Kerberos asked for a ticket: the proxy has answered, the KDC has not. */
export class KdcTimeout extends RouteFault {}

/** From the most to the least informative fault: a proxy that answered knows more than a network that did not. */
const BY_INFORMATION: readonly RouteFaultCode[] = [
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
