import { type CallerListener, type Connection, connectThrough } from "./caller.ts";
import { startAgentProcess } from "./cluster-processes.ts";
import { type Flood, startFlood } from "./flood.ts";
import { TARGETS } from "./targets.ts";
import { startTwoTenants, type TwoTenants, type TwoTenantsOptions } from "./two-tenants.ts";
import { waitFor } from "./wait.ts";

interface StalledCallers {
  readonly tenants: TwoTenants;
  readonly flood: Flood;
  /** A CONNECT to the cluster of those that have stopped. */
  readonly connect: () => Promise<Connection>;
  /** Where these CONNECTs go. */
  readonly listener: CallerListener;
}

interface StalledCallersOptions {
  readonly count: number;
  readonly via: "uds" | "tls";
  /** Bytes that the target sends to each: more than can wait on the path. */
  readonly sent: number;
  readonly tenants?: TwoTenantsOptions;
}

/** Callers of red that stop reading, all on one tunnel; `check` begins when each of them has had an answer. */
export async function withStalledCallers(
  { count, via, sent, tenants: options }: StalledCallersOptions,
  check: (at: StalledCallers) => Promise<void>,
): Promise<void> {
  await using tenants = await startTwoTenants(options);
  const { red, agentPort, callerPort, target } = tenants;
  await using _agent = await startAgentProcess(red, agentPort);
  await using source = await TARGETS.source({ bytes: sent });
  const listener = await red.listener("tls", callerPort);
  const connect = () => connectThrough(listener, target, { deadlineMs: 10_000 });
  const tls = { ca: red.ca, ...(await red.callerPair), servername: red.sni };
  await using flood = await startFlood("stalled-callers", {
    ...(via === "uds" ? { path: red.uds } : { port: callerPort, tls }),
    target: source.address,
    callers: count,
    atOnce: 16,
  });
  const heard = () => {
    const { answered, refused, refusedOtherwise } = flood.counts;
    return [answered, refused, refusedOtherwise].reduce((sum: number, each) => sum + Number(each ?? 0), 0);
  };
  const what = `${count} answers`;
  await waitFor(() => heard() >= count, { deadlineMs: 100_000, what });
  await check({ tenants, flood, connect, listener });
}
