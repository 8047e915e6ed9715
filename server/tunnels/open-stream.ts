import type { Target } from "../../shared/address/target.ts";
import { CulvertError, toCulvertError } from "../../shared/outcomes.ts";
import type { Stream } from "../../shared/yamux/stream.ts";
import type { ServerMetrics } from "../metrics/server-metrics.ts";
import type { ServerOptions } from "../options/options.ts";
import type { Choice } from "./candidates.ts";
import type { ClusterTunnels } from "./cluster-tunnels.ts";
import {
  findAnother,
  nextWay,
  openAt,
  openFurther,
  type PeerFinder,
  type ServerHop,
  type StreamSearch,
} from "./elsewhere.ts";
import { leftMs, type OpeningWatcher, type OpenOptions } from "./opening.ts";
import { Tunnel } from "./tunnel.ts";

/** The CONNECT, or the connect check, for which a stream is opened. */
export interface OpenContext extends Pick<OpenOptions, "id" | "deadline" | "cancellation"> {
  /** Present: another server knows that only agents which claim the target may be asked (`Candidates`). */
  readonly onlyClaimed?: true;
  /** Set by `openStream`: the tunnel that is asked, and why it was chosen. */
  tunnel: Tunnel | undefined;
  choice: Choice | undefined;
  /** Set by `openStream`: the other server that is asked in place of a tunnel. */
  hop: ServerHop | undefined;
  /** Present: the agent is asked for the times of its steps. */
  readonly watch?: OpenWatcher;
}

interface OpenWatcher extends OpeningWatcher {
  /** This tunnel, or this other server, is asked now; `before` is why the first one could not be used. */
  onPicked(way: Tunnel | ServerHop, before: CulvertError | undefined): void;
}

export interface OpenStreamDeps {
  readonly options: Pick<
    ServerOptions,
    "connectTimeoutMs" | "dialTimeoutMs" | "agentAckTimeoutMs" | "agentWaitMs" | "maxPendingConnects"
  >;
  readonly metrics: Pick<ServerMetrics, "pendingOpens">;
  /** True from SIGTERM on. */
  draining(): boolean;
  /** Present with a directory: finds servers that have agents of a cluster which has none here. */
  peers?(): PeerFinder | undefined;
}

/**
 * Opens a stream to the target: over the best tunnel, or over a second one if the agent of the first did not take the
 * stream. If the only tunnel has ended, the next one is waited for, as a CONNECT that comes a moment later would do.
 * Of other servers two are asked, or more where identifiers are strict. Rejects with a `CulvertError`.
 */
export async function openStream(
  target: Target,
  cluster: ClusterTunnels,
  context: OpenContext,
  deps: OpenStreamDeps,
): Promise<Stream> {
  const { options, metrics } = deps;
  const { pendingConnects } = cluster;
  if (pendingConnects >= options.maxPendingConnects) {
    const sentence = `too many CONNECTs wait for an answer (${pendingConnects}, --max-pending-connects): try again`;
    throw new CulvertError("overloaded", sentence);
  }
  const candidates = cluster.candidates(target, context.onlyClaimed);
  const search = { target, cluster, candidates, context, options, peers: deps.peers?.() };
  cluster.pendingConnects++;
  metrics.pendingOpens(1);
  try {
    const first = candidates.pick() ?? (await nextWay(search));
    try {
      return await openOn(first, search);
    } catch (error) {
      if (!mayTryAnother(error, first) || leftMs(context) <= 0) throw error;
      return await openOnSecond(first, error, search, deps);
    }
  } finally {
    cluster.pendingConnects--;
    metrics.pendingOpens(-1);
  }
}

/** The first tunnel, or server, could not be used, for this reason. */
async function openOnSecond(
  first: Tunnel | ServerHop,
  why: CulvertError,
  search: StreamSearch,
  { draining }: Pick<OpenStreamDeps, "draining">,
): Promise<Stream> {
  const { cluster, candidates } = search;
  const [tunnel, hop] = first instanceof Tunnel ? [first, undefined] : [undefined, first];
  const hasEnded = tunnel === undefined || tunnel.closed || tunnel.leaving;
  const mayCome = hasEnded && !draining() && cluster.closedBecause === undefined;
  const second =
    candidates.pick(tunnel) ??
    (mayCome ? await nextWay(search, hop).catch(unlessCallerGone(why)) : await findAnother(search, why));
  if (second === undefined) throw why;
  try {
    return await openOn(second, search, why);
  } catch (error) {
    if (second instanceof Tunnel || !candidates.onlyClaimed) throw error;
    return await openFurther(hop === undefined ? [second] : [hop, second], search, error);
  }
}

/** Opens a stream by this way; `before` is why the way before it could not be used. */
function openOn(way: Tunnel | ServerHop, search: StreamSearch, before?: CulvertError): Promise<Stream> {
  if (!(way instanceof Tunnel)) return openAt(way, search, before);
  const { target, cluster, candidates, context, options } = search;
  const { id, cancellation, deadline, watch } = context;
  context.tunnel = way;
  context.hop = undefined;
  context.choice = candidates.choiceOf(way);
  watch?.onPicked(way, before);
  return way.open(target, {
    id,
    cancellation,
    deadline,
    watch,
    dialTimeoutMs: options.dialTimeoutMs,
    ackTimeoutMs: options.agentAckTimeoutMs,
    hasAlternative: () => candidates.pick(way) !== undefined,
    whenAvailable: (until) => cluster.whenAvailable(leftMs(context), until, candidates),
  });
}

/** If no second tunnel has come, the error of the first one says more, unless the caller has left meanwhile. */
function unlessCallerGone(before: unknown): (error: unknown) => never {
  return (error) => {
    throw toCulvertError(error).code === "caller_gone" ? error : before;
  };
}

/** Whether another agent, or another server, may be asked: no byte of the caller was sent. */
function mayTryAnother(error: unknown, way: Tunnel | ServerHop): error is CulvertError {
  if (!(error instanceof CulvertError)) return false;
  // What the directory said is not true any more: the agents of the cluster are elsewhere now.
  const isStale = !(way instanceof Tunnel) && (error.code === "no_agent" || error.code === "unknown_cluster");
  return error.retryable || isStale;
}
