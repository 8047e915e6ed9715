import type { Target } from "../../shared/address/target.ts";
import type { Cancellation } from "../../shared/basics/promises.ts";
import { CulvertError, toCulvertError } from "../../shared/outcomes.ts";
import type { Stream } from "../../shared/yamux/stream.ts";
import type { ServerMetrics } from "../metrics/server-metrics.ts";
import type { ServerOptions } from "../options/options.ts";
import type { Candidates, Choice } from "./candidates.ts";
import type { OpeningWatcher } from "./opening.ts";
import type { ClusterTunnels } from "./registry.ts";
import type { Tunnel } from "./tunnel.ts";

/** The CONNECT, or the connect check, for which a stream is opened. */
export interface OpenContext {
  /** The server's name for the connection, for the logs of both ends. */
  readonly id: string;
  /** When the answer must be there, by `performance.now()`. */
  readonly deadline: number;
  /** Cancelled when the answer is not needed any more. */
  readonly cancellation: Cancellation<CulvertError>;
  /** Set by `openStream`: the tunnel that is asked, and why it was chosen. */
  tunnel: Tunnel | undefined;
  choice: Choice | undefined;
  /** Present: the agent is asked for the times of its steps. */
  readonly watch?: OpenWatcher;
}

export interface OpenWatcher extends OpeningWatcher {
  /** This tunnel is asked now; `before` is why the first one could not be used. */
  onPicked(tunnel: Tunnel, before: CulvertError | undefined): void;
}

export interface OpenStreamDeps {
  readonly options: Pick<
    ServerOptions,
    "connectTimeoutMs" | "dialTimeoutMs" | "agentAckTimeoutMs" | "agentWaitMs" | "maxPendingConnects"
  >;
  readonly metrics: Pick<ServerMetrics, "pendingOpens">;
  /** True from SIGTERM on. */
  draining(): boolean;
}

/**
 * Opens a stream to the target: over the best tunnel, or over a second one if the agent of the first did not take the
 * stream. If the only tunnel has ended, the next one is waited for, as a CONNECT that comes a moment later would do.
 * Rejects with a `CulvertError`.
 */
export async function openStream(
  target: Target,
  cluster: ClusterTunnels,
  context: OpenContext,
  { options, metrics, draining }: OpenStreamDeps,
): Promise<Stream> {
  const { pendingConnects } = cluster;
  if (pendingConnects >= options.maxPendingConnects) {
    const sentence = `too many CONNECTs wait for an answer (${pendingConnects}, --max-pending-connects): try again`;
    throw new CulvertError("overloaded", sentence);
  }
  const candidates = cluster.candidates(target);
  cluster.pendingConnects++;
  metrics.pendingOpens(1);
  try {
    return await openOnFirstOrSecond();
  } finally {
    cluster.pendingConnects--;
    metrics.pendingOpens(-1);
  }

  async function openOnFirstOrSecond(): Promise<Stream> {
    const first = candidates.pick() ?? (await nextTunnel());
    try {
      return await openOn(first);
    } catch (error) {
      if (!isRetryable(error) || leftMs() <= 0) throw error;
      const hasEnded = first.closed || first.leaving;
      const mayCome = hasEnded && !draining() && cluster.closedBecause === undefined;
      const second =
        candidates.pick(first) ?? (mayCome ? await nextTunnel().catch(unlessCallerGone(error)) : undefined);
      if (second === undefined) throw error;
      return await openOn(second, error);
    }
  }

  function nextTunnel(): Promise<Tunnel> {
    const waitMs = Math.min(agentWaitMs(candidates, options), leftMs());
    return cluster.whenAvailable(waitMs, context.cancellation, candidates);
  }

  async function openOn(tunnel: Tunnel, before?: CulvertError): Promise<Stream> {
    const { id, cancellation, watch } = context;
    context.tunnel = tunnel;
    context.choice = candidates.choiceOf(tunnel);
    watch?.onPicked(tunnel, before);
    return await tunnel.open(target, {
      id,
      cancellation,
      timeoutMs: leftMs(),
      dialTimeoutMs: options.dialTimeoutMs,
      ackTimeoutMs: options.agentAckTimeoutMs,
      hasAlternative: () => candidates.pick(tunnel) !== undefined,
      whenAvailable: (until) => cluster.whenAvailable(leftMs(), until, candidates),
      watch,
    });
  }

  function leftMs(): number {
    return context.deadline - performance.now();
  }
}

/**
 * How long a CONNECT waits for a tunnel, ms. If an agent has only lost its connection, half of the whole time: the
 * other half is for the dial, and kubectl, which may ask twice, shows its user an error after the whole of it.
 */
function agentWaitMs(
  { expected }: Pick<Candidates, "expected">,
  { agentWaitMs, connectTimeoutMs }: Pick<ServerOptions, "agentWaitMs" | "connectTimeoutMs">,
): number {
  return expected === undefined ? agentWaitMs : Math.max(agentWaitMs, connectTimeoutMs / 2);
}

/** If no second tunnel has come, the error of the first one says more, unless the caller has left meanwhile. */
function unlessCallerGone(before: unknown): (error: unknown) => never {
  return (error) => {
    throw toCulvertError(error).code === "caller_gone" ? error : before;
  };
}

function isRetryable(error: unknown): error is CulvertError {
  return error instanceof CulvertError && error.retryable;
}
