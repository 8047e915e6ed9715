import { setTimeout as sleep } from "node:timers/promises";
import type { Target } from "../../shared/address/target.ts";
import { Cancellation, inTime } from "../../shared/basics/promises.ts";
import type { MemoryAccount } from "../../shared/limits/memory-account.ts";
import { CulvertError, toCulvertError } from "../../shared/outcomes.ts";
import type { Stream } from "../../shared/yamux/stream.ts";
import type { ServerMetrics } from "../metrics/server-metrics.ts";
import type { ServerOptions } from "../options/options.ts";
import type { Candidates, Choice } from "./candidates.ts";
import type { ClusterTunnels } from "./cluster-tunnels.ts";
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
  /** Whether an agent at `remote` that has dialled this address has reached this server's own callers' port. */
  leadsBack?(dialled: string, remote: string): boolean;
  /** Present with a directory: finds servers that have agents of a cluster which has none here. */
  peers?(): PeerFinder | undefined;
}

/** Another server, which has said that agents of a cluster are connected to it. */
export interface ServerHop {
  readonly serverId: string;
  /** The agent there that has the stream; known from its answer on. */
  readonly agent: string | undefined;
  /** Opens a stream to the target there; rejects with a `CulvertError`. */
  open(target: Target, options: HopOptions): Promise<Stream>;
}

/** Finds other servers (server/peers). */
export interface PeerFinder {
  /** A server with agents of the cluster, other than these. Never rejects. */
  find(cluster: string, except?: readonly ServerHop[]): Promise<ServerHop | undefined>;
  /** Why nobody can be found now who may have the cluster, as the end of a sentence. */
  trouble(cluster: string): string | undefined;
}

export interface HopOptions extends Pick<OpenOptions, "id" | "cancellation" | "deadline" | "ackTimeoutMs" | "watch"> {
  /** The account of the cluster, which pays for what the stream holds here. */
  readonly memory: MemoryAccount;
  /** Only agents that claim the target may be asked. */
  readonly onlyClaimed: boolean;
}

/** What is looked for, and where: the same for each tunnel and server that is asked. */
interface StreamSearch {
  readonly target: Target;
  readonly cluster: ClusterTunnels;
  readonly candidates: Candidates;
  readonly context: OpenContext;
  readonly deps: OpenStreamDeps;
  /** Present with a directory. */
  readonly peers: PeerFinder | undefined;
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
  const search = { target, cluster, candidates, context, deps, peers: deps.peers?.() };
  cluster.pendingConnects++;
  metrics.pendingOpens(1);
  try {
    const first = candidates.pick() ?? (await nextWay(search));
    try {
      return await openOn(first, search);
    } catch (error) {
      if (!mayTryAnother(error, first) || leftMs(context) <= 0) throw error;
      return await openOnSecond(first, error, search);
    }
  } finally {
    cluster.pendingConnects--;
    metrics.pendingOpens(-1);
  }
}

/** The first tunnel, or server, could not be used, for this reason. */
async function openOnSecond(first: Tunnel | ServerHop, why: CulvertError, search: StreamSearch): Promise<Stream> {
  const { cluster, candidates, deps } = search;
  const [tunnel, hop] = first instanceof Tunnel ? [first, undefined] : [undefined, first];
  const hasEnded = tunnel === undefined || tunnel.closed || tunnel.leaving;
  const mayCome = hasEnded && !deps.draining() && cluster.closedBecause === undefined;
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
  const { target, cluster, candidates, context, deps } = search;
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
    dialTimeoutMs: deps.options.dialTimeoutMs,
    ackTimeoutMs: deps.options.agentAckTimeoutMs,
    leadsBack: (dialled) => deps.leadsBack?.(dialled, way.remote) === true,
    hasAlternative: () => before === undefined && candidates.pick(way) !== undefined,
    whenAvailable: (until) => cluster.whenAvailable(leftMs(context), until, candidates),
  });
}

/** Opens a stream at another server; `before` is why the tunnel or server before it could not be used. */
async function openAt(hop: ServerHop, search: StreamSearch, before?: CulvertError): Promise<Stream> {
  const { target, cluster, candidates, context, deps } = search;
  const { id, cancellation, deadline, watch } = context;
  Object.assign(context, { hop, tunnel: undefined, choice: undefined });
  watch?.onPicked(hop, before);
  const stream = await hop.open(target, {
    ...{ id, cancellation, deadline, watch, ackTimeoutMs: deps.options.agentAckTimeoutMs },
    ...{ onlyClaimed: candidates.onlyClaimed, memory: cluster.memory },
  });
  cluster.hopStreams++;
  stream.once("close", () => cluster.hopStreams--);
  return stream;
}

/**
 * Asks servers that have not been asked yet, as long as those before them have no agent that claims the target: the
 * directory knows who has agents of a cluster, but not what they claim. `why` is what the last one has said.
 */
async function openFurther(asked: ServerHop[], search: StreamSearch, why: unknown): Promise<Stream> {
  let error = why;
  while (asked.length < MAX_SERVERS && error instanceof CulvertError && error.code === "no_agent") {
    const hop = await findAnother(search, error, asked);
    if (hop === undefined || leftMs(search.context) <= 0) break;
    asked.push(hop);
    try {
      return await openAt(hop, search, error);
    } catch (again) {
      error = again;
    }
  }
  throw error;
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

// ── while no tunnel here takes it ────────────────────────────────────────────────────────────────────────────────────

/** Other servers that are asked for one CONNECT at most, where only agents that claim its target may be asked. */
const MAX_SERVERS = 4;
/** Nobody reads it: a server was found, or is not to be found now. */
const FOUND = new CulvertError("caller_gone", "the directory has answered");
/** How long a CONNECT without an agent waits before it asks the directory again, ms. */
const ASK_AGAIN_MS = 200;

/** The next tunnel here, or a server that has one; another than `except`, if there is another. */
async function nextWay(search: StreamSearch, except?: ServerHop): Promise<Tunnel | ServerHop> {
  const { cluster, candidates, context, peers } = search;
  const { cancellation } = context;
  const waitMs = Math.min(agentWaitMs(search), leftMs(context));
  if (peers === undefined) return await cluster.whenAvailable(waitMs, cancellation, candidates);
  const until = performance.now() + waitMs;
  const waiting = new Cancellation<CulvertError>();
  const onCancelled = (): void => waiting.cancel(cancellation.reason ?? FOUND);
  cancellation.onCancelled = onCancelled;
  if (cancellation.reason !== undefined) onCancelled();
  // A tunnel may come here while the directory is asked, which may take its time.
  const coming = cluster.whenAvailable(leftMs(context), waiting, candidates);
  try {
    for (let avoid = except; ; avoid = undefined) {
      const found = await Promise.race([peers.find(cluster.name, avoid && [avoid]), coming]);
      if (found !== undefined) return found;
      const pauseMs = Math.max(0, Math.min(ASK_AGAIN_MS, until - performance.now()));
      const come = await Promise.race([sleep(pauseMs), coming]);
      if (come !== undefined) return come;
      if (pauseMs < ASK_AGAIN_MS) throw candidates.noAgent();
    }
  } catch (error) {
    throw cancellation.reason ?? withTrouble(error, search);
  } finally {
    cancellation.onCancelled = undefined;
    waiting.cancel(FOUND);
  }
}

/**
 * How long a CONNECT waits for a tunnel, ms. If an agent has only lost its connection, half of the whole time: the
 * other half is for the dial, and kubectl, which may ask twice, shows its user an error after the whole of it.
 */
function agentWaitMs({ candidates, deps }: StreamSearch): number {
  const { agentWaitMs, connectTimeoutMs } = deps.options;
  return candidates.expected === undefined ? agentWaitMs : Math.max(agentWaitMs, connectTimeoutMs / 2);
}

/** Where other servers cannot be found, the agent may well be connected to one of them. */
function withTrouble(error: unknown, { cluster, peers }: StreamSearch): unknown {
  const trouble = peers?.trouble(cluster.name);
  if (trouble === undefined || !(error instanceof CulvertError) || error.code !== "no_agent") return error;
  return new CulvertError(error.code, `${error.message}; ${trouble}`, { cause: error });
}

/** Another server than those; `why` is what the caller reads if the directory says nothing before the deadline. */
async function findAnother(
  { cluster, context, peers }: StreamSearch,
  why: CulvertError,
  asked?: readonly ServerHop[],
): Promise<ServerHop | undefined> {
  return peers && inTime(peers.find(cluster.name, asked), context.cancellation, leftMs(context), () => why);
}
