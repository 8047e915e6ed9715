import { promises as dns, type LookupAddress } from "node:dns";
import type { Socket } from "node:net";
import type { Target } from "../../shared/address/target.ts";
import { untilAborted } from "../../shared/basics/until-aborted.ts";
import { dialTcp, networkFault } from "../../shared/dial/dial-tcp.ts";
import { RouteFault } from "../../shared/dial/fault.ts";
import { type Finding, type Passed, StepFailed } from "./steps.ts";

/** Where a connection goes first: to the server, or to a proxy. */
export interface Hop extends Target {
  /** How people call it. */
  readonly at: string;
  /** Who named the proxy; absent: it is the server. */
  readonly proxyFrom?: string;
}

/** The addresses behind a name. */
export async function resolve(hop: Hop, signal: AbortSignal): Promise<Passed<readonly LookupAddress[]>> {
  const { host, at } = hop;
  try {
    const addresses = await untilAborted(dns.lookup(host, { all: true }), signal);
    return { value: addresses, detail: `${host} is ${addresses.map(({ address }) => address).join(", ")}` };
  } catch (error) {
    const fault = signal.aborted
      ? new RouteFault("dns", `the name "${host}" of ${at} does not resolve: no name server answers`, {
          at,
          cause: error,
        })
      : networkFault(error as NodeJS.ErrnoException, host, at);
    throw stepFailed(fault, hop);
  }
}

export async function connect(hop: Hop, signal: AbortSignal): Promise<Passed<Socket>> {
  try {
    const socket = await dialTcp(hop, hop.at, signal);
    return { value: socket, detail: `connected to ${socket.remoteAddress}:${socket.remotePort}` };
  } catch (error) {
    throw stepFailed(error, hop);
  }
}

/** What a way out says of its fault is what the doctor says; of our own files it names the option first. */
export function stepFailed(error: unknown, hop: Hop): unknown {
  if (!(error instanceof RouteFault)) return error;
  const { fault, at, message } = error;
  const isProxy = hop.proxyFrom !== undefined && at === hop.at;
  const finding: Finding = message.startsWith("--")
    ? { culprit: "configuration", by: message }
    : { culprit: fault, by: at, ...(isProxy && { proxyFrom: hop.proxyFrom }) };
  return new StepFailed(finding, message, { cause: error });
}
