import { formatTarget, type Target } from "../../shared/address/target.ts";
import { Cancellation } from "../../shared/basics/promises.ts";
import { CulvertError, type OutcomeCode, outcome, printable, toCulvertError } from "../../shared/outcomes.ts";
import { type SpliceTotals, splice } from "../../shared/relay/splice.ts";
import type { Logger } from "../../shared/runtime/logger.ts";
import type { ThrottledLog } from "../../shared/runtime/throttled-log.ts";
import { encodePeerAnswer, type PeerOpenRequest, parsePeerOpen } from "../../shared/wire/peer-heads.ts";
import type { OpenAnswer } from "../../shared/wire/stream-head.ts";
import type { Stream } from "../../shared/yamux/stream.ts";
import type { HopMetrics } from "../metrics/fleet-metrics.ts";
import type { ServerOptions } from "../options/options.ts";
import type { ClusterTunnels } from "../tunnels/cluster-tunnels.ts";
import { type OpenContext, type OpenStreamDeps, openStream } from "../tunnels/open-stream.ts";
import { type HopEnd, hopResetCode, isClosedCleanly, isSessionLost } from "../tunnels/stream-end.ts";
import type { FromPeer } from "./accepted-peers.ts";
import { PEERS } from "./peer-link.ts";

interface ServedForPeers {
  readonly tunnels: ClusterTunnels;
  /** Throws `forbidden` for a target that the document does not allow. */
  requireTarget(target: Target): void;
}

export interface ServePeerDeps extends Omit<OpenStreamDeps, "peers" | "metrics"> {
  readonly options: OpenStreamDeps["options"] & Pick<ServerOptions, "serverId" | "stallTimeoutMs">;
  readonly metrics: OpenStreamDeps["metrics"] & { readonly hops: HopMetrics };
  /** The clusters that are served now. */
  readonly clusters: { get(name: string): ServedForPeers | undefined };
  readonly log: Logger;
  readonly throttledLog: Pick<ThrottledLog, "write">;
  /** Throws `overloaded` when this process has hardly a file descriptor left. */
  readonly files: { requireRoom(code: "overloaded"): void };
}

/** How long a refused stream may linger until the peer has ended its side, too, ms. */
const LINGER_MS = 5_000;
const FAILED = "CONNECT of a peer failed";

/**
 * A CONNECT that has come to another server, for a cluster whose agents are here. It goes to an agent of this server
 * and never to a third one. Admission and limits are those of the server that the caller came to; the rules for targets
 * are applied here, too, because its document may be an older one. Never rejects.
 */
export async function servePeer(stream: Stream, json: Buffer, from: FromPeer, deps: ServePeerDeps): Promise<void> {
  const { metrics, log, throttledLog } = deps;
  const { serverId } = deps.options;
  const startedAt = performance.now();
  let request: PeerOpenRequest | undefined;
  let context: OpenContext | undefined;
  const finish = (code: OutcomeCode | "ok", reason: Error | undefined, totals?: SpliceTotals): void => {
    metrics.hops.served(code);
    const level = code === "ok" ? "info" : outcome(code).level;
    const line = {
      ...{ id: request?.id, peer: from.serverId, cluster: request?.cluster, agent: context?.tunnel?.agent.agentId },
      ...{ target: request && formatTarget(request.target), ...context?.choice, outcome: code },
      ...(totals && { bytesUp: totals.bytesUp, bytesDown: totals.bytesDown, endedBy: totals.endedBy }),
      durationMs: Math.round((performance.now() - startedAt) * 10) / 10,
      ...(code === "internal" ? { err: reason?.cause ?? reason } : reason && { reason: printable(reason.message) }),
    };
    if (totals !== undefined) log[level](line, "connection of a peer closed");
    else if (context !== undefined) throttledLog.write(level, line, FAILED, { kind: code });
    // The request is malformed, or names a cluster that is not known here.
    else throttledLog.write(level, line, FAILED, { tenant: PEERS, kind: from.serverId });
  };
  try {
    request = parsePeerOpen(json);
    const { cluster: name, target } = request;
    const served = deps.clusters.get(name);
    if (served === undefined) {
      const sentence = `server "${serverId}" has no cluster "${name}": compare the documents of both servers`;
      throw new CulvertError("unknown_cluster", sentence);
    }
    if (deps.draining()) throw new CulvertError("draining", `server "${serverId}" is shutting down: try again`);
    served.requireTarget(target);
    const cluster = served.tunnels;
    stream.chargeTo(cluster.memory);
    deps.files.requireRoom("overloaded");
    let answer: (OpenAnswer & { readonly ok: true }) | undefined;
    context = contextOf(stream, request, startedAt, (given) => {
      if (given.ok) answer = given;
    });
    const opened = await openHere(target, cluster, context, deps);
    if (stream.destroyed) {
      opened.destroy();
      throw callerGone();
    }
    const { address, times } = answer ?? {};
    stream.write(
      encodePeerAnswer({
        ...{ ok: true, agent: context.tunnel?.agent.agentId ?? "" },
        ...(address !== undefined && { address }),
        ...(request.timed === true && times !== undefined && { times }),
      }),
    );
    const { stallTimeoutMs } = deps.options;
    const why = (by: SpliceTotals["endedBy"]) => endOf(opened, by, deps);
    const totals = await splice(stream, opened, {
      ...{ stallTimeoutMs, memory: cluster.memory },
      resetCaller: (by) => stream.reset(undefined, hopResetCode(why(by))),
    });
    finish(why(totals.endedBy) ?? "ok", totals.error, totals);
  } catch (error) {
    const refusal = stream.destroyed ? callerGone(error) : toCulvertError(error);
    refuseStream(stream, context?.tunnel === undefined ? naming(serverId, refusal) : refusal);
    finish(refusal.code, refusal);
  }
}

/** Opens the stream, and tells it apart from those of callers here, whose limits are this server's. */
async function openHere(
  target: Target,
  cluster: ClusterTunnels,
  context: OpenContext,
  { metrics, options, draining }: ServePeerDeps,
): Promise<Stream> {
  const { ofPeers } = cluster;
  ofPeers.pending++;
  try {
    const opened = await openStream(target, cluster, context, {
      ...{ metrics, draining: () => draining() },
      // Where no agent is here now, the other server asks the directory again, and waits where the caller is.
      options: { ...options, agentWaitMs: 0, connectTimeoutMs: 0 },
    });
    if (!opened.closed) {
      ofPeers.open++;
      opened.once("close", () => ofPeers.open--);
    }
    return opened;
  } finally {
    ofPeers.pending--;
  }
}

/** Why the stream to the agent has ended, if it was neither the target nor the caller. */
function endOf(opened: Stream, by: SpliceTotals["endedBy"], { draining }: ServePeerDeps): HopEnd | undefined {
  if (by === "memory") return "stalled";
  if (!isSessionLost(opened)) return undefined;
  // At the end of the drain time this server closes its tunnels cleanly.
  return draining() && isClosedCleanly(opened) ? "draining" : "agent_lost";
}

function contextOf(
  stream: Stream,
  { id, timeoutMs, onlyClaimed, timed }: PeerOpenRequest,
  startedAt: number,
  onAnswer: (answer: OpenAnswer) => void,
): OpenContext {
  const cancellation = new Cancellation<CulvertError>();
  stream.once("close", () => cancellation.cancel(callerGone()));
  if (stream.destroyed) cancellation.cancel(callerGone());
  return {
    ...{ id, deadline: startedAt + timeoutMs, cancellation, tunnel: undefined, choice: undefined, hop: undefined },
    ...(onlyClaimed && { onlyClaimed }),
    ...(timed === true && { watch: { onPicked: ignore, onAcknowledged: ignore, onAnswer } }),
  };
}

/** Answers and ends cleanly, so that the answer arrives: a reset could overtake it. */
export function refuseStream(stream: Stream, refusal: CulvertError): void {
  if (stream.destroyed) return;
  stream.end(encodePeerAnswer({ ok: false, error: refusal }));
  stream.resume();
  const timer = setTimeout(() => stream.reset(), LINGER_MS).unref();
  stream.once("close", () => clearTimeout(timer));
}

/** The caller, who came to another server, reads which of the two has too much to do, or did not understand. */
function naming(serverId: string, refusal: CulvertError): CulvertError {
  const { code, message, retryAfterMs } = refusal;
  if (code !== "overloaded" && code !== "internal") return refusal;
  return new CulvertError(code, `server "${serverId}": ${message}`, {
    cause: refusal,
    ...(retryAfterMs !== undefined && { retryAfterMs }),
  });
}

function callerGone(cause?: unknown): CulvertError {
  return new CulvertError("caller_gone", "the other server gave the request up before the answer", { cause });
}

function ignore(): void {}
