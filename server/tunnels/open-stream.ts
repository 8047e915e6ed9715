import type { Duplex } from "node:stream";
import { setTimeout as sleep } from "node:timers/promises";
import type { Target } from "../../shared/address/target.ts";
import { Cancellation, inTime } from "../../shared/basics/promises.ts";
import { CulvertError, toCulvertError } from "../../shared/outcomes.ts";
import type { Candidates, Choice } from "./candidates.ts";
import type { ClusterTunnels } from "./cluster-tunnels.ts";
import type { ServerContext } from "./context.ts";
import { leftMs } from "./opening.ts";
import type { PeerFinder, ServerHop } from "./peer-finder.ts";
import type { AskedStream, OpeningWatcher, Tunnel } from "./tunnel.ts";

/** The CONNECT, or the connect check, for which a stream is opened. */
export interface StreamRequest extends AskedStream {
  /** Present: it has come from another server, which asks further servers itself, and waits for agents itself. */
  readonly onlyHere?: true;
  /** Present: another server knows that only agents which claim the target may be asked (`Candidates`). */
  readonly onlyClaimed?: true;
  /** Set by `openStream`: the tunnel that is asked, and why it was chosen. */
  tunnel: Tunnel | undefined;
  choice: Choice | undefined;
  /** Set by `openStream`: the other server that is asked in place of a tunnel. */
  hop: ServerHop | undefined;
  readonly watch?: OpenWatcher | undefined;
}

export interface OpenWatcher extends OpeningWatcher {
  /** This tunnel, or this other server, is asked now; `before` is why the first one could not be used. */
  onPicked(way: Tunnel | ServerHop, before: CulvertError | undefined): void;
}

/** Whether a CONNECT goes to another server, and not to an agent here. */
export function isHop(way: Tunnel | ServerHop): way is ServerHop {
  return "serverId" in way;
}

/** The search for a stream: the same for each tunnel and server that is asked. */
interface StreamSearch {
  readonly target: Target;
  readonly cluster: ClusterTunnels;
  readonly candidates: Candidates;
  readonly request: StreamRequest;
  readonly context: ServerContext;
  /** Present with a directory, unless another server has asked. */
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
  request: StreamRequest,
  context: ServerContext,
): Promise<Duplex> {
  const { options, metrics } = context;
  const { pendingConnects } = cluster;
  if (pendingConnects >= options.maxPendingConnects) {
    const sentence = `too many CONNECTs wait for an answer (${pendingConnects}, --max-pending-connects): try again`;
    throw new CulvertError("overloaded", sentence);
  }
  const candidates = cluster.candidates(target, request.onlyClaimed);
  const peers = request.onlyHere ? undefined : context.peers();
  const search: StreamSearch = { target, cluster, candidates, request, context, peers };
  cluster.pendingConnects++;
  metrics.pendingOpens(1);
  try {
    const first = candidates.pick() ?? (await nextWay(search));
    try {
      return await openOn(first, search);
    } catch (error) {
      if (!mayTryAnother(error, first) || leftMs(request) <= 0) throw error;
      return await openOnSecond(first, error, search);
    }
  } finally {
    cluster.pendingConnects--;
    metrics.pendingOpens(-1);
  }
}

/** The first tunnel, or server, could not be used, for this reason. */
async function openOnSecond(first: Tunnel | ServerHop, why: CulvertError, search: StreamSearch): Promise<Duplex> {
  const { cluster, candidates, context } = search;
  const [tunnel, hop] = isHop(first) ? [undefined, first] : [first, undefined];
  const hasEnded = tunnel === undefined || tunnel.closed || tunnel.leaving;
  const mayCome = hasEnded && !context.draining() && cluster.closedBecause === undefined;
  const second =
    candidates.pick(tunnel) ??
    (mayCome
      ? await nextWay(search, hop).catch(unlessCallerGone(withTrouble(why, search)))
      : await findAnother(search, why));
  if (second === undefined) throw why;
  try {
    return await openOn(second, search, why);
  } catch (error) {
    if (!isHop(second) || !candidates.onlyClaimed) throw error;
    return await openFurther(hop === undefined ? [second] : [hop, second], search, error);
  }
}

/** Streams that were asked of tunnels. */
let uses = 0;

/** Opens a stream by this way; `before` is why the way before it could not be used. */
function openOn(way: Tunnel | ServerHop, search: StreamSearch, before?: CulvertError): Promise<Duplex> {
  if (isHop(way)) return openAt(way, search, before);
  const { target, cluster, candidates, request, context } = search;
  const { dialTimeoutMs, agentAckTimeoutMs: ackTimeoutMs } = context.options;
  const { id, cancellation, deadline, watch, traceparent } = request;
  way.lastUsed = ++uses;
  request.tunnel = way;
  request.hop = undefined;
  request.choice = candidates.choiceOf(way);
  watch?.onPicked(way, before);
  return way.open(target, {
    id,
    cancellation,
    deadline,
    watch,
    traceparent,
    dialTimeoutMs,
    ackTimeoutMs,
    leadsBack: (dialled) => context.leadsBack(dialled, way.remote),
    hasAlternative: () => before === undefined && candidates.pick(way) !== undefined,
    whenAvailable: (until) => cluster.whenAvailable(leftMs(request), until, candidates),
  });
}

/** Opens a stream at another server; `before` is why the tunnel or server before it could not be used. */
async function openAt(hop: ServerHop, search: StreamSearch, before?: CulvertError): Promise<Duplex> {
  const { target, cluster, candidates, request, context } = search;
  const { id, cancellation, deadline, watch, traceparent } = request;
  request.tunnel = undefined;
  request.hop = hop;
  request.choice = undefined;
  watch?.onPicked(hop, before);
  const stream = await hop.open(target, {
    id,
    cancellation,
    deadline,
    watch,
    traceparent,
    ackTimeoutMs: context.options.agentAckTimeoutMs,
    onlyClaimed: candidates.onlyClaimed,
    memory: cluster.memory,
  });
  cluster.hopStreams++;
  stream.once("close", () => cluster.hopStreams--);
  return stream;
}

/**
 * Asks servers that have not been asked yet, as long as those before them have no agent that claims the target: the
 * directory knows who has agents of a cluster, but not what they claim. `why` is what the last one has said.
 */
async function openFurther(asked: ServerHop[], search: StreamSearch, why: unknown): Promise<Duplex> {
  let error = why;
  while (asked.length < MAX_SERVERS && error instanceof CulvertError && error.code === "no_agent") {
    const hop = await findAnother(search, error, asked);
    if (hop === undefined || leftMs(search.request) <= 0) break;
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
  // The directory's answer is out of date: the agents of the cluster are elsewhere now.
  const isStale = isHop(way) && (error.code === "no_agent" || error.code === "unknown_cluster");
  return error.retryable || isStale;
}

// ── while no tunnel here takes it ────────────────────────────────────────────────────────────────────────────────────

/** Other servers that are asked for one CONNECT at most, where only agents that claim its target may be asked. */
const MAX_SERVERS = 4;
/** How long a CONNECT without an agent waits before it asks the directory again, ms. */
const ASK_AGAIN_MS = 200;

/** The next tunnel here, or a server that has one; another than `except`, if there is another. */
async function nextWay(search: StreamSearch, except?: ServerHop): Promise<Tunnel | ServerHop> {
  const { cluster, candidates, request, peers } = search;
  const { cancellation } = request;
  const waitMs = Math.min(agentWaitMs(search), leftMs(request));
  if (peers === undefined) return await cluster.whenAvailable(waitMs, cancellation, candidates);
  const until = performance.now() + waitMs;
  const waiting = new Cancellation<CulvertError>();
  const endWaiting = (): void => waiting.cancel(cancellation.reason ?? candidates.noAgent());
  cancellation.onCancelled = endWaiting;
  if (cancellation.reason !== undefined) endWaiting();
  // A tunnel may come here while the directory is asked, which may take its time.
  const coming = cluster.whenAvailable(leftMs(request), waiting, candidates);
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
    endWaiting();
  }
}

/**
 * How long a CONNECT waits for a tunnel, ms. If an agent has only lost its connection, half of the whole time: the
 * other half is for the dial, and kubectl, which may ask twice, shows its user an error after the whole of it.
 */
function agentWaitMs({ candidates, request, context }: StreamSearch): number {
  const { agentWaitMs, connectTimeoutMs } = context.options;
  if (request.onlyHere) return 0;
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
  { cluster, request, peers }: StreamSearch,
  why: CulvertError,
  asked?: readonly ServerHop[],
): Promise<ServerHop | undefined> {
  return peers && inTime(peers.find(cluster.name, asked), request.cancellation, leftMs(request), () => why);
}
