import type { Duplex } from "node:stream";
import type { Target } from "../../shared/address/target.ts";
import { Cancellation, inTime } from "../../shared/basics/promises.ts";
import type { MemoryAccount } from "../../shared/limits/memory-account.ts";
import { CulvertError, toCulvertError } from "../../shared/outcomes.ts";
import type { Stream } from "../../shared/yamux/stream.ts";
import type { ServerMetrics } from "../metrics/server-metrics.ts";
import type { ServerOptions } from "../options/options.ts";
import type { Candidates, Choice } from "./candidates.ts";
import type { ClusterTunnels } from "./cluster-tunnels.ts";
import type { OpeningWatcher, OpenOptions } from "./opening.ts";
import { Tunnel } from "./tunnel.ts";

/** The CONNECT, or the connect check, for which a stream is opened. */
export interface OpenContext {
  /** The server's name for the connection, for the logs of both ends. */
  readonly id: string;
  /** When the answer must be there, by `performance.now()`. */
  readonly deadline: number;
  /** Present: another server knows that only agents which claim the target may be asked (`Candidates`). */
  readonly onlyClaimed?: true;
  /** Cancelled when the answer is not needed any more. */
  readonly cancellation: Cancellation<CulvertError>;
  /** Set by `openStream`: the tunnel that is asked, and why it was chosen. */
  tunnel: Tunnel | undefined;
  choice: Choice | undefined;
  /** Set by `openStream`: the other server that is asked in place of a tunnel. */
  hop: ServerHop | undefined;
  /** Present: the agent is asked for the times of its steps. */
  readonly watch?: OpenWatcher;
}

export interface OpenWatcher extends OpeningWatcher {
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

/** Other servers that are asked for one CONNECT at most, where only agents that claim its target may be asked. */
const MAX_SERVERS = 4;
/** Nobody reads it: a server was found, or is not to be found now. */
const FOUND = new CulvertError("caller_gone", "the directory has answered");
/** How long a CONNECT without an agent waits before it asks the directory again, ms. */
const ASK_AGAIN_MS = 200;

/**
 * Opens a stream to the target: over the best tunnel, or over a second one if the agent of the first did not take the
 * stream. If the only tunnel has ended, the next one is waited for, as a CONNECT that comes a moment later would do.
 * Of other servers two are asked, or more where identifiers are strict: the directory knows who has agents of a
 * cluster, but not what they claim. Rejects with a `CulvertError`.
 */
export async function openStream(
  target: Target,
  cluster: ClusterTunnels,
  context: OpenContext,
  { options, metrics, draining, peers: findPeers }: OpenStreamDeps,
): Promise<Stream> {
  const peers = findPeers?.();
  const { pendingConnects } = cluster;
  if (pendingConnects >= options.maxPendingConnects) {
    const sentence = `too many CONNECTs wait for an answer (${pendingConnects}, --max-pending-connects): try again`;
    throw new CulvertError("overloaded", sentence);
  }
  const candidates = cluster.candidates(target, context.onlyClaimed);
  cluster.pendingConnects++;
  metrics.pendingOpens(1);
  try {
    return await openOnFirstOrSecond();
  } finally {
    cluster.pendingConnects--;
    metrics.pendingOpens(-1);
  }

  async function openOnFirstOrSecond(): Promise<Stream> {
    const first = candidates.pick() ?? (await nextWay());
    try {
      return await openOn(first);
    } catch (error) {
      if (!mayTryAnother(error, first) || leftMs() <= 0) throw error;
      const hop = first instanceof Tunnel ? undefined : first;
      const hasEnded = first instanceof Tunnel ? first.closed || first.leaving : true;
      const mayCome = hasEnded && !draining() && cluster.closedBecause === undefined;
      const second =
        candidates.pick(hop === undefined ? (first as Tunnel) : undefined) ??
        (mayCome ? await nextWay(hop).catch(unlessCallerGone(error)) : await findAnother(error));
      if (second === undefined) throw error;
      return await openOn(second, error).catch((again) => openFurther(hop, second, again));
    }
  }

  /** Asks servers that have not been asked yet, as long as those before them have no agent that claims the target. */
  async function openFurther(first: ServerHop | undefined, second: Tunnel | ServerHop, why: unknown): Promise<Stream> {
    if (second instanceof Tunnel || !candidates.onlyClaimed) throw why;
    const asked = first === undefined ? [second] : [first, second];
    let error = why;
    while (asked.length < MAX_SERVERS && error instanceof CulvertError && error.code === "no_agent") {
      const hop = await findAnother(error, asked);
      if (hop === undefined || leftMs() <= 0) break;
      asked.push(hop);
      try {
        return await openAt(hop, error);
      } catch (again) {
        error = again;
      }
    }
    throw error;
  }

  /** Another server than those; `why` is what the caller reads if the directory says nothing before the deadline. */
  async function findAnother(why: CulvertError, asked?: readonly ServerHop[]): Promise<ServerHop | undefined> {
    return peers && inTime(peers.find(cluster.name, asked), context.cancellation, leftMs(), () => why);
  }

  /** The next tunnel here, or a server that has one; another than `except`, if there is another. */
  async function nextWay(except?: ServerHop): Promise<Tunnel | ServerHop> {
    const { cancellation } = context;
    const until = performance.now() + Math.min(agentWaitMs(candidates, options), leftMs());
    for (let avoid = except; ; avoid = undefined) {
      const found = peers && (await findOrCome(peers, avoid));
      if (found !== undefined) return found;
      const waitMs = until - performance.now();
      const isLast = peers === undefined || waitMs <= ASK_AGAIN_MS;
      try {
        return await cluster.whenAvailable(isLast ? waitMs : ASK_AGAIN_MS, cancellation, candidates);
      } catch (error) {
        if (cancellation.reason !== undefined) throw error;
        if (isLast) throw withTrouble(error, cluster.name, peers);
      }
    }
  }

  /** A server, or a tunnel that comes here while the directory is asked, which may take its time. */
  async function findOrCome(finder: PeerFinder, avoid?: ServerHop): Promise<Tunnel | ServerHop | undefined> {
    const { cancellation } = context;
    const waiting = new Cancellation<CulvertError>();
    const onCancelled = (): void => waiting.cancel(cancellation.reason ?? FOUND);
    cancellation.onCancelled = onCancelled;
    if (cancellation.reason !== undefined) onCancelled();
    const coming = cluster.whenAvailable(leftMs(), waiting, candidates);
    try {
      return await Promise.race([finder.find(cluster.name, avoid && [avoid]), coming]);
    } catch (error) {
      throw cancellation.reason === undefined ? withTrouble(error, cluster.name, finder) : error;
    } finally {
      cancellation.onCancelled = undefined;
      waiting.cancel(FOUND);
    }
  }

  function openOn(way: Tunnel | ServerHop, before?: CulvertError): Promise<Stream> {
    return way instanceof Tunnel ? openThrough(way, before) : openAt(way, before);
  }

  async function openAt(hop: ServerHop, before?: CulvertError): Promise<Stream> {
    const { id, cancellation, watch } = context;
    Object.assign(context, { hop, tunnel: undefined, choice: undefined });
    watch?.onPicked(hop, before);
    const stream = await hop.open(target, {
      ...{ id, cancellation, watch, timeoutMs: leftMs(), ackTimeoutMs: options.agentAckTimeoutMs },
      ...{ onlyClaimed: candidates.onlyClaimed, memory: cluster.memory },
    });
    cluster.hopStreams++;
    stream.once("close", () => cluster.hopStreams--);
    return stream;
  }

  function openThrough(tunnel: Tunnel, before?: CulvertError): Promise<Stream> {
    const { id, cancellation, watch } = context;
    context.tunnel = tunnel;
    context.hop = undefined;
    context.choice = candidates.choiceOf(tunnel);
    watch?.onPicked(tunnel, before);
    return tunnel.open(target, {
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

/** Whether another agent, or another server, may be asked: no byte of the caller was sent. */
function mayTryAnother(error: unknown, way: Tunnel | ServerHop): error is CulvertError {
  if (!(error instanceof CulvertError)) return false;
  // What the directory said is not true any more: the agents of the cluster are elsewhere now.
  const isStale = !(way instanceof Tunnel) && (error.code === "no_agent" || error.code === "unknown_cluster");
  return error.retryable || isStale;
}

/** Where other servers cannot be found, the agent may well be connected to one of them. */
function withTrouble(error: unknown, cluster: string, peers: PeerFinder | undefined): unknown {
  const trouble = peers?.trouble(cluster);
  if (trouble === undefined || !(error instanceof CulvertError) || error.code !== "no_agent") return error;
  return new CulvertError(error.code, `${error.message}; ${trouble}`, { cause: error });
}

// ── other servers ───────────────────────────────────────────────────────────────────────────────────────────────────

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

export interface HopOptions extends Pick<OpenOptions, "id" | "cancellation" | "timeoutMs" | "ackTimeoutMs" | "watch"> {
  /** The account of the cluster, which pays for what the stream holds here. */
  readonly memory: MemoryAccount;
  /** Only agents that claim the target may be asked. */
  readonly onlyClaimed: boolean;
}

// ── why an open stream has ended ────────────────────────────────────────────────────────────────────────────────────

/** Whether a stream has ended because its session was lost, and not because the target has reset it. */
export function isSessionLost(stream: Duplex): boolean {
  return (stream.errored as NodeJS.ErrnoException | null)?.code === "ESESSION";
}

/** Whether a stream's session was closed by one of its ends, and nothing has gone wrong. */
export function isClosedInOrder(stream: Duplex): boolean {
  return stream.errored?.cause === undefined;
}

/** Why another server has reset a stream, if it was neither the target nor the caller. */
export type HopEnd = "agent_lost" | "draining" | "stalled";

/** The codes of resets between servers; other versions may have more. */
const CODES = { agent_lost: 1, draining: 2, stalled: 3 } as const satisfies Record<HopEnd, number>;

/** The code of a reset, for the server that the caller came to; 0: the target has reset the connection. */
export function hopResetCode(end: HopEnd | undefined): number {
  return end === undefined ? 0 : CODES[end];
}

/** What another server has said when it reset this stream. */
export function hopEndOf({ resetCode }: Pick<Stream, "resetCode">): HopEnd | undefined {
  return (Object.keys(CODES) as HopEnd[]).find((end) => CODES[end] === resetCode);
}

export function hopEndSentence(end: HopEnd, serverId: string): string {
  switch (end) {
    case "agent_lost":
      return `server "${serverId}" has lost the connection to the agent`;
    case "draining":
      return `server "${serverId}" has shut down, and this was still open when its --drain-timeout was over`;
    case "stalled":
      return `server "${serverId}" needed the memory that this connection held for a reader that had stopped`;
  }
}
