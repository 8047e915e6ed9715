import { DialFault } from "../faults/faults.ts";

/** Who stands in the way, and how: one word for metrics and the doctor, the message for people. */
export type RouteFaultCode =
  // the network, to the server or to a proxy
  | "dns"
  | "refused"
  | "unreachable"
  | "timeout"
  | "closed"
  // a PAC script: it cannot be read, or does not answer
  | "pac"
  // the proxy: it answered
  | "proxy_auth_required"
  | "proxy_auth_refused"
  | "proxy_auth_unsupported"
  /** It wants to know who we are, and is not told: see `isNamedInClear` of a way. */
  | "proxy_auth_withheld"
  | "proxy_closed"
  | "proxy_forbidden"
  | "proxy_unavailable"
  /** A captive portal: the same word as where a page comes in answer to the upgrade. */
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

  /** `message`: a sentence that names the culprit and a cure, without secrets. */
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
