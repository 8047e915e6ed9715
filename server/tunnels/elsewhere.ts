import { setTimeout as sleep } from "node:timers/promises";
import type { Target } from "../../shared/address/target.ts";
import { Cancellation, inTime } from "../../shared/basics/promises.ts";
import type { MemoryAccount } from "../../shared/limits/memory-account.ts";
import { CulvertError } from "../../shared/outcomes.ts";
import type { Stream } from "../../shared/yamux/stream.ts";
import type { Candidates } from "./candidates.ts";
import type { ClusterTunnels } from "./cluster-tunnels.ts";
import type { OpenContext, OpenStreamDeps } from "./open-stream.ts";
import { leftMs, type OpenOptions } from "./opening.ts";
import type { Tunnel } from "./tunnel.ts";

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
export interface StreamSearch {
  readonly target: Target;
  readonly cluster: ClusterTunnels;
  readonly candidates: Candidates;
  readonly context: OpenContext;
  readonly options: OpenStreamDeps["options"];
  /** Present with a directory. */
  readonly peers: PeerFinder | undefined;
}

/** Other servers that are asked for one CONNECT at most, where only agents that claim its target may be asked. */
const MAX_SERVERS = 4;
/** Nobody reads it: a server was found, or is not to be found now. */
const FOUND = new CulvertError("caller_gone", "the directory has answered");
/** How long a CONNECT without an agent waits before it asks the directory again, ms. */
const ASK_AGAIN_MS = 200;

/** The next tunnel here, or a server that has one; another than `except`, if there is another. */
export async function nextWay(search: StreamSearch, except?: ServerHop): Promise<Tunnel | ServerHop> {
  const { cluster, candidates, context, peers } = search;
  const { cancellation } = context;
  const waitMs = Math.min(agentWaitMs(search), leftMs(context));
  if (peers === undefined) return await cluster.whenAvailable(waitMs, cancellation, candidates);
  const until = performance.now() + waitMs;
  const waiting = new Cancellation<CulvertError>();
  const done = new AbortController();
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
      const come = await Promise.race([sleep(pauseMs, undefined, { signal: done.signal }), coming]);
      if (come !== undefined) return come;
      if (pauseMs < ASK_AGAIN_MS) throw candidates.noAgent();
    }
  } catch (error) {
    throw cancellation.reason ?? withTrouble(error, search);
  } finally {
    cancellation.onCancelled = undefined;
    waiting.cancel(FOUND);
    done.abort();
  }
}

/**
 * How long a CONNECT waits for a tunnel, ms. If an agent has only lost its connection, half of the whole time: the
 * other half is for the dial, and kubectl, which may ask twice, shows its user an error after the whole of it.
 */
function agentWaitMs({ candidates, options: { agentWaitMs, connectTimeoutMs } }: StreamSearch): number {
  return candidates.expected === undefined ? agentWaitMs : Math.max(agentWaitMs, connectTimeoutMs / 2);
}

/** Where other servers cannot be found, the agent may well be connected to one of them. */
function withTrouble(error: unknown, { cluster, peers }: StreamSearch): unknown {
  const trouble = peers?.trouble(cluster.name);
  if (trouble === undefined || !(error instanceof CulvertError) || error.code !== "no_agent") return error;
  return new CulvertError(error.code, `${error.message}; ${trouble}`, { cause: error });
}

/** Another server than those; `why` is what the caller reads if the directory says nothing before the deadline. */
export async function findAnother(
  { cluster, context, peers }: StreamSearch,
  why: CulvertError,
  asked?: readonly ServerHop[],
): Promise<ServerHop | undefined> {
  return peers && inTime(peers.find(cluster.name, asked), context.cancellation, leftMs(context), () => why);
}

/**
 * Asks servers that have not been asked yet, as long as those before them have no agent that claims the target: the
 * directory knows who has agents of a cluster, but not what they claim. `why` is what the last one has said.
 */
export async function openFurther(asked: ServerHop[], search: StreamSearch, why: unknown): Promise<Stream> {
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

/** Opens a stream at another server; `before` is why the tunnel or server before it could not be used. */
export async function openAt(hop: ServerHop, search: StreamSearch, before?: CulvertError): Promise<Stream> {
  const { target, cluster, candidates, context, options } = search;
  const { id, cancellation, deadline, watch } = context;
  Object.assign(context, { hop, tunnel: undefined, choice: undefined });
  watch?.onPicked(hop, before);
  const stream = await hop.open(target, {
    ...{ id, cancellation, deadline, watch, ackTimeoutMs: options.agentAckTimeoutMs },
    ...{ onlyClaimed: candidates.onlyClaimed, memory: cluster.memory },
  });
  cluster.hopStreams++;
  stream.once("close", () => cluster.hopStreams--);
  return stream;
}
