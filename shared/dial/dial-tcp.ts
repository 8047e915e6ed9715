import { once } from "node:events";
import { connect, isIP, type Socket } from "node:net";
import type { Target } from "../address/target.ts";
import { lookup } from "../names/lookup.ts";
import { RouteFault, type RouteFaultCode } from "./proxy-route.ts";

/** Time for one address of a name while others wait. Node's default of 250 ms is too short for distant ones. */
const ADDRESS_TIMEOUT_MS = 1_000;

/**
 * Opens a TCP connection to a server or a proxy, which faults call `at`. Rejects with a `RouteFault`. An abort gives
 * `dns` before the name has resolved, and `timeout` afterwards.
 */
export async function dialTcp({ host, port }: Target, at: string, signal: AbortSignal): Promise<Socket> {
  const socket = connect({
    host,
    port,
    lookup,
    noDelay: true,
    autoSelectFamily: true,
    autoSelectFamilyAttemptTimeout: ADDRESS_TIMEOUT_MS,
  });
  // The caller adds its own listener a moment later.
  socket.on("error", () => {});
  let isResolved = isIP(host) !== 0;
  socket.once("lookup", () => {
    isResolved = true;
  });
  try {
    await once(socket, "connect", { signal });
    return socket;
  } catch (error) {
    socket.destroy();
    if (signal.aborted && !isResolved) throw lookupTimeout(host, at);
    if (signal.aborted) throw new RouteFault("timeout", `${at} did not answer: check firewalls on the way`, { at });
    throw networkFault(error as NodeJS.ErrnoException, host, at);
  }
}

/** The name server gave no answer in time. */
export function lookupTimeout(host: string, at: string): RouteFault {
  const sentence = `the name "${host}" of ${at} did not resolve in time: check this machine's DNS`;
  return new RouteFault("dns", sentence, { at });
}

/** The fault for an error of the resolver or the kernel. */
export function networkFault(error: NodeJS.ErrnoException, host: string, at: string): RouteFault {
  // Of several addresses, a refused connection is the most informative: a machine was there.
  const attempts = error instanceof AggregateError ? (error.errors as NodeJS.ErrnoException[]) : [error];
  const shown = attempts.find(({ code }) => code === "ECONNREFUSED") ?? attempts[0] ?? error;
  const code = shown.code ?? "";
  const [fault, what] = ERRORS.get(code) ?? (["unreachable", `cannot be reached (${code || shown.message})`] as const);
  const subject = fault === "dns" ? `the name "${host}" of ${at}` : at;
  return new RouteFault(fault, `${subject} ${what}`, { at, cause: error });
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
