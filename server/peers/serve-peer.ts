import type { Duplex } from "node:stream";
import { formatTarget, type Target } from "../../shared/address/target.ts";
import { Cancellation } from "../../shared/basics/promises.ts";
import { CulvertError, type OutcomeCode, outcome, printable, toCulvertError } from "../../shared/outcomes.ts";
import { type SpliceTotals, splice } from "../../shared/relay/splice.ts";
import { encodePeerAnswer, type PeerOpenRequest, parsePeerOpen } from "../../shared/wire/peer-heads.ts";
import type { OpenAnswer } from "../../shared/wire/stream-head.ts";
import type { Stream } from "../../shared/yamux/stream.ts";
import type { AuditedEntry, AuditedFacts } from "../audit/audit-trail.ts";
import type { ClusterTunnels } from "../tunnels/cluster-tunnels.ts";
import type { ServerContext } from "../tunnels/context.ts";
import { endWithAnswer } from "../tunnels/incoming-stream.ts";
import { openStream, type StreamRequest } from "../tunnels/open-stream.ts";
import { type HopEnd, hopResetCode, isClosedCleanly, isSessionLost, orEnd } from "../tunnels/stream-end.ts";
import type { FromPeer } from "./accepted-peers.ts";
import { PEERS } from "./peer-link.ts";

const FAILED = "CONNECT of a peer failed";

/**
 * A CONNECT that has come to another server, for a cluster whose agents are here. It goes to an agent of this server
 * and never to a third one. Admission and limits are those of the server that the caller came to; the rules for targets
 * are applied here, too, because its document may be an older one. Never rejects.
 */
export async function servePeer(stream: Stream, json: Buffer, from: FromPeer, context: ServerContext): Promise<void> {
  const { options, metrics, log, throttledLog } = context;
  const { serverId, stallTimeoutMs } = options;
  const startedAt = performance.now();
  let asked: PeerOpenRequest | undefined;
  let request: StreamRequest | undefined;
  let answer: (OpenAnswer & { readonly ok: true }) | undefined;
  let audited: AuditedEntry | undefined;
  const finish = (code: OutcomeCode | "ok", reason: Error | undefined, totals?: SpliceTotals): void => {
    metrics.hops.served(code);
    const trail = context.audit();
    const why = code === "internal" ? undefined : reason?.message;
    if (audited === undefined) trail?.refused(auditedFacts(asked, request, answer, from), code, why);
    else trail?.ended(audited, { outcome: code, reason: why, ...totals });
    const level = code === "ok" ? "info" : outcome(code).level;
    const line = {
      id: asked?.id,
      peer: from.serverId,
      cluster: asked?.cluster,
      agent: request?.tunnel?.agent.agentId,
      target: asked && formatTarget(asked.target),
      ...request?.choice,
      outcome: code,
      ...(totals && { bytesUp: totals.bytesUp, bytesDown: totals.bytesDown, endedBy: totals.endedBy }),
      durationMs: Math.round((performance.now() - startedAt) * 10) / 10,
      ...(code === "internal" ? { err: reason?.cause ?? reason } : reason && { reason: printable(reason.message) }),
    };
    if (totals !== undefined) log[level](line, "connection of a peer closed");
    else if (request !== undefined) throttledLog.write(level, line, FAILED, { kind: code });
    // The request is malformed, or names a cluster that is not known here.
    else throttledLog.write(level, line, FAILED, { tenant: PEERS, kind: from.serverId });
  };
  try {
    asked = parsePeerOpen(json);
    const { cluster: name, target } = asked;
    const served = context.clusters.get(name);
    if (served === undefined) {
      const sentence = `server "${serverId}" has no cluster "${name}": compare the documents of both servers`;
      throw new CulvertError("unknown_cluster", sentence);
    }
    if (context.draining()) throw new CulvertError("draining", `server "${serverId}" is shutting down: try again`);
    served.requireTarget(target);
    const cluster = served.tunnels;
    stream.chargeTo(cluster.memory);
    context.files.requireRoom("overloaded");
    context.audit()?.requireWritable();
    request = requestOf(stream, asked, startedAt, (given) => {
      if (given.ok) answer = given;
    });
    const opened = await openHere(target, cluster, request, context);
    const trail = context.audit();
    audited = trail?.allowed(auditedFacts(asked, request, answer, from));
    if (audited !== undefined) {
      await orEnd(trail?.written(audited, request.cancellation), () => opened.destroy());
    }
    if (stream.destroyed) {
      opened.destroy();
      throw callerGone();
    }
    const { address, times, traced } = answer ?? {};
    stream.write(
      encodePeerAnswer({
        ok: true,
        agent: request.tunnel?.agent.agentId ?? "",
        ...(address !== undefined && { address }),
        ...(asked.timed === true && times !== undefined && { times }),
        traced,
      }),
    );
    const why = (by: SpliceTotals["endedBy"]) => endOf(opened, by, context);
    const totals = await splice(stream, opened, {
      stallTimeoutMs,
      memory: cluster.memory,
      resetCaller: (by) => stream.reset(undefined, hopResetCode(why(by))),
    });
    finish(why(totals.endedBy) ?? "ok", totals.error, totals);
  } catch (error) {
    const refusal = stream.destroyed ? callerGone(error) : toCulvertError(error);
    const shown = request?.tunnel === undefined ? naming(serverId, refusal) : refusal;
    endWithAnswer(stream, encodePeerAnswer({ ok: false, error: shown }));
    finish(refusal.code, refusal);
  }
}

/** The caller is known to the other server, whose trail has the same `connection`. */
function auditedFacts(
  asked: PeerOpenRequest | undefined,
  request: StreamRequest | undefined,
  answer: { readonly address?: string } | undefined,
  { serverId, remote, identity }: FromPeer,
): AuditedFacts {
  return {
    kind: "hop",
    cluster: asked?.cluster,
    by: { peer: identity },
    source: remote,
    connection: asked?.id,
    target: asked && formatTarget(asked.target),
    address: answer?.address,
    agent: request?.tunnel?.agent.agentId,
    peer: serverId,
  };
}

/** Opens the stream, and tells it apart from those of callers here, whose limits are this server's. */
async function openHere(
  target: Target,
  cluster: ClusterTunnels,
  request: StreamRequest,
  context: ServerContext,
): Promise<Duplex> {
  const { ofPeers } = cluster;
  ofPeers.pending++;
  try {
    const opened = await openStream(target, cluster, request, context);
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
function endOf(opened: Duplex, by: SpliceTotals["endedBy"], { draining }: ServerContext): HopEnd | undefined {
  if (by === "memory") return "stalled";
  if (!isSessionLost(opened)) return undefined;
  // At the end of the drain time this server closes its tunnels cleanly.
  return draining() && isClosedCleanly(opened) ? "draining" : "agent_lost";
}

function requestOf(
  stream: Stream,
  { id, timeoutMs, onlyClaimed, traceparent }: PeerOpenRequest,
  startedAt: number,
  onAnswer: (answer: OpenAnswer) => void,
): StreamRequest {
  const cancellation = new Cancellation<CulvertError>();
  stream.once("close", () => cancellation.cancel(callerGone()));
  if (stream.destroyed) cancellation.cancel(callerGone());
  return {
    id,
    deadline: startedAt + timeoutMs,
    cancellation,
    onlyHere: true,
    tunnel: undefined,
    choice: undefined,
    hop: undefined,
    traceparent,
    ...(onlyClaimed && { onlyClaimed }),
    watch: { onPicked: ignore, onAcknowledged: ignore, onAnswer },
  };
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
