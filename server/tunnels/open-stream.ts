import type { Target } from "../../shared/address/target.ts";
import { CulvertError, toCulvertError } from "../../shared/outcomes.ts";
import type { Stream } from "../../shared/yamux/stream.ts";
import type { ServerMetrics } from "../metrics/server-metrics.ts";
import type { ServerOptions } from "../options/options.ts";
import type { Cancellable, OpeningWatcher } from "./opening.ts";
import type { ClusterTunnels } from "./registry.ts";
import type { Tunnel } from "./tunnel.ts";

/** Who wants a stream: a CONNECT, or the doctor in its place. */
export interface Asker {
  /** This server's name for the connection. */
  readonly id: string;
  /** Of the time within which there has to be an answer. */
  leftMs(): number;
  /** One step towards the answer, given up when nobody waits for it any more. */
  during<T>(step: Cancellable<T>): Promise<T>;
  /** It is this one that is asked now; `before`: what came of the one that was asked first. */
  onPicked(tunnel: Tunnel, before?: CulvertError): void;
  readonly watch?: OpeningWatcher;
}

export interface ReachDeps {
  readonly options: Pick<
    ServerOptions,
    "connectTimeoutMs" | "dialTimeoutMs" | "agentAckTimeoutMs" | "agentWaitMs" | "maxPendingConnects"
  >;
  readonly metrics: Pick<ServerMetrics, "pendingOpens">;
  /** True from SIGTERM on. */
  draining(): boolean;
}

export interface Reached {
  readonly stream: Stream;
  readonly tunnel: Tunnel;
}

/**
 * The stream to the target: over the best tunnel, or over a second one if the first did not even take it. Where the only one
 * is over, because its agent is lost or begins anew, whoever comes next is waited for: a moment later this CONNECT would have.
 */
export async function reach(
  target: Target,
  cluster: ClusterTunnels,
  asker: Asker,
  { options, metrics, draining }: ReachDeps,
): Promise<Reached> {
  return await counted(cluster, options.maxPendingConnects, async () => {
    metrics.pendingOpens(1);
    try {
      return await overFirstOrSecond();
    } finally {
      metrics.pendingOpens(-1);
    }
  });

  async function overFirstOrSecond(): Promise<Reached> {
    const first = cluster.pick() ?? (await next());
    try {
      return await over(first);
    } catch (error) {
      if (!retryable(error) || asker.leftMs() <= 0) throw error;
      const isOver = first.closed || first.leaving;
      const mayCome = isOver && !draining() && cluster.closedBecause === undefined;
      const second = cluster.pick(first) ?? (mayCome ? await next().catch(orCallerGone(error)) : undefined);
      if (second === undefined) throw error;
      return await over(second, error);
    }
  }

  function next(): Promise<Tunnel> {
    const waitMs = Math.min(patienceMs(cluster, options), asker.leftMs());
    return asker.during(cluster.whenAvailable(waitMs));
  }

  async function over(tunnel: Tunnel, before?: CulvertError): Promise<Reached> {
    asker.onPicked(tunnel, before);
    const opening = tunnel.open(target, {
      id: asker.id,
      timeoutMs: asker.leftMs(),
      dialTimeoutMs: options.dialTimeoutMs,
      ackTimeoutMs: options.agentAckTimeoutMs,
      hasAlternative: () => cluster.pick(tunnel) !== undefined,
      whenAvailable: () => cluster.whenAvailable(asker.leftMs()),
      ...(asker.watch !== undefined && { watch: asker.watch }),
    });
    return { stream: await asker.during(opening), tunnel };
  }
}

/** Whoever waits for an answer is one of those that a cluster may have, whatever the step is that takes time. */
async function counted<T>(cluster: ClusterTunnels, most: number, step: () => Promise<T>): Promise<T> {
  const { pendingConnects } = cluster;
  if (pendingConnects >= most)
    throw new CulvertError(
      "overloaded",
      `too many CONNECTs wait for an answer (${pendingConnects}, --max-pending-connects): try again`,
    );
  cluster.pendingConnects++;
  try {
    return await step();
  } finally {
    cluster.pendingConnects--;
  }
}

/**
 * An agent that has only lost its connection is worth half of the time: the other half is for the dial when it comes back
 * late, and kubectl, which may ask twice, tells its user why after the whole of it.
 */
function patienceMs(cluster: ClusterTunnels, { agentWaitMs, connectTimeoutMs }: ReachDeps["options"]): number {
  return cluster.expected === undefined ? agentWaitMs : Math.max(agentWaitMs, connectTimeoutMs / 2);
}

/** Nobody has come: what has happened before says more, but for a caller that has left meanwhile. */
function orCallerGone(before: unknown): (error: unknown) => never {
  return (error) => {
    throw toCulvertError(error).code === "caller_gone" ? error : before;
  };
}

function retryable(error: unknown): error is CulvertError {
  return error instanceof CulvertError && error.retryable;
}
