import { once } from "node:events";
import { connect, isIP, type Socket } from "node:net";
import type { Target } from "../address/target.ts";
import type { RouteFaultCode } from "./fault.ts";
import { RouteFault } from "./fault.ts";

/** How long one address of a name may take while others wait. Node's default, 250 ms, loses distant ones. */
const ATTEMPT_MS = 1_000;

/**
 * TCP to a server or to a proxy, called `at` in a fault. Rejects with a `RouteFault`; an abort is a `timeout`, which says
 * where this stood.
 */
export async function dialTcp({ host, port }: Target, at: string, signal: AbortSignal): Promise<Socket> {
  const socket = connect({
    host,
    port,
    noDelay: true,
    autoSelectFamily: true,
    autoSelectFamilyAttemptTimeout: ATTEMPT_MS,
  });
  // Whoever takes the socket binds listeners a moment later.
  socket.on("error", () => {});
  let resolved = isIP(host) !== 0;
  socket.once("lookup", () => {
    resolved = true;
  });
  try {
    await once(socket, "connect", { signal });
    return socket;
  } catch (error) {
    socket.destroy();
    if (signal.aborted && !resolved) throw lateName(host, at);
    if (signal.aborted) throw new RouteFault("timeout", `${at} did not answer: check firewalls on the way`, { at });
    throw networkFault(error as NodeJS.ErrnoException, host, at);
  }
}

/** A resolver that says nothing at all. */
export function lateName(host: string, at: string): RouteFault {
  const sentence = `the name "${host}" of ${at} did not resolve in time: check this machine's DNS`;
  return new RouteFault("dns", sentence, { at });
}

/** What the resolver or the kernel said. */
export function networkFault(error: NodeJS.ErrnoException, host: string, at: string): RouteFault {
  // Several addresses were tried: that somebody was there and said no tells most.
  const attempts = error instanceof AggregateError ? (error.errors as NodeJS.ErrnoException[]) : [error];
  const telling = attempts.find(({ code }) => code === "ECONNREFUSED") ?? attempts[0] ?? error;
  const code = telling.code ?? "";
  const [fault, what] =
    ERRORS.get(code) ?? (["unreachable", `cannot be reached (${code || telling.message})`] as const);
  const who = fault === "dns" ? `the name "${host}" of ${at}` : at;
  return new RouteFault(fault, `${who} ${what}`, { at, cause: error });
}

const REFUSED = "refused the connection: check that something listens there";
const UNREACHABLE = "cannot be reached: check this machine's routes and firewall";

const ERRORS = new Map<string, readonly [RouteFaultCode, string]>([
  ["ENOTFOUND", ["dns", "does not resolve: check it and this machine's DNS"]],
  ["ENODATA", ["dns", "has no address: check it and this machine's DNS"]],
  ["EAI_AGAIN", ["dns", "does not resolve: this machine's name server did not answer"]],
  ["ECONNREFUSED", ["refused", REFUSED]],
  ["ETIMEDOUT", ["timeout", "did not answer: check firewalls on the way"]],
  ["ECONNRESET", ["closed", "reset the connection"]],
  ["EPIPE", ["closed", "closed the connection"]],
  ["EHOSTUNREACH", ["unreachable", UNREACHABLE]],
  ["ENETUNREACH", ["unreachable", UNREACHABLE]],
  ["EACCES", ["unreachable", "cannot be reached: this machine's firewall does not permit it"]],
  ["EPERM", ["unreachable", "cannot be reached: this machine's firewall does not permit it"]],
]);
