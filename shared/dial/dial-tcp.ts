import type { Socket } from "node:net";
import type { Target } from "../address/target.ts";
import { ConnectAborted, connectTcp } from "../net/connect-tcp.ts";
import { RouteFault, type RouteFaultCode } from "./proxy-route.ts";

/**
 * Opens a TCP connection to a server or a proxy, which faults call `at`. Rejects with a `RouteFault`. An abort gives
 * `dns` before the name has resolved, and `timeout` afterwards.
 */
export async function dialTcp(to: Target, at: string, signal: AbortSignal): Promise<Socket> {
  try {
    return await connectTcp(to, signal);
  } catch (error) {
    if (!(error instanceof ConnectAborted)) throw networkFault(error as NodeJS.ErrnoException, to.host, at);
    if (!error.isResolved) throw lookupTimeout(to.host, at);
    const causes = error.causes === "" ? "" : ` (${error.causes})`;
    throw new RouteFault("timeout", `${at} did not answer: check firewalls on the way${causes}`, { at });
  }
}

/** The name server gave no answer in time. */
export function lookupTimeout(host: string, at: string): RouteFault {
  const sentence = `the name "${host}" of ${at} did not resolve in time: check this machine's DNS`;
  return new RouteFault("dns", sentence, { at });
}

/** The fault for an error of the resolver or the kernel. */
export function networkFault(error: NodeJS.ErrnoException, host: string, at: string): RouteFault {
  const { code = "", message } = error;
  const [fault, what] = ERRORS.get(code) ?? (["unreachable", `cannot be reached (${code || message})`] as const);
  // Of several addresses, each one's.
  const causes = error instanceof AggregateError && code !== "" ? ` (${message})` : "";
  const subject = fault === "dns" ? `the name "${host}" of ${at}` : at;
  return new RouteFault(fault, `${subject} ${what}${causes}`, { at, cause: error });
}

const UNREACHABLE = "cannot be reached: check this machine's routes and firewall";
const NOT_PERMITTED = "cannot be reached: this machine's firewall does not permit it";

const ERRORS = new Map<string, readonly [RouteFaultCode, string]>([
  ["ENOTFOUND", ["dns", "does not resolve: check it and this machine's DNS"]],
  ["ENODATA", ["dns", "has no address: check it and this machine's DNS"]],
  ["EAI_AGAIN", ["dns", "does not resolve: this machine's name server did not answer"]],
  ["ECONNREFUSED", ["refused", "refused the connection: check that something listens there"]],
  ["ETIMEDOUT", ["timeout", "did not answer: check firewalls on the way"]],
  ["ECONNRESET", ["closed", "reset the connection"]],
  ["EPIPE", ["closed", "closed the connection"]],
  ["EHOSTUNREACH", ["unreachable", UNREACHABLE]],
  ["ENETUNREACH", ["unreachable", UNREACHABLE]],
  ["EACCES", ["unreachable", NOT_PERMITTED]],
  ["EPERM", ["unreachable", NOT_PERMITTED]],
]);
