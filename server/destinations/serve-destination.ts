import type { Socket } from "node:net";
import { formatTarget, type Target } from "../../shared/address/target.ts";
import { Cancellation } from "../../shared/basics/promises.ts";
import { type Lookup, lookupAll, TargetDial } from "../../shared/dial/dial-target.ts";
import { CONNECTION_BYTES } from "../../shared/limits/memory-account.ts";
import { CulvertError, type OutcomeCode, outcome, printable, toCulvertError } from "../../shared/outcomes.ts";
import { resetSocket } from "../../shared/relay/reset.ts";
import { type SpliceTotals, splice } from "../../shared/relay/splice.ts";
import {
  DESTINATION_KIND,
  type DestinationRequest,
  encodeDestinationAnswer,
  parseDestination,
} from "../../shared/wire/destination-heads.ts";
import type { Stream } from "../../shared/yamux/stream.ts";
import type { AuditedEntry, AuditedFacts } from "../audit/audit-trail.ts";
import { addressRefusal } from "../clusters/destinations.ts";
import type { AgentStreamKind, StreamOpener } from "../tunnels/agent-streams.ts";
import type { ServedCluster, ServerContext } from "../tunnels/context.ts";
import { endWithAnswer } from "../tunnels/incoming-stream.ts";
import { orEnd } from "../tunnels/stream-end.ts";
import { partyOf } from "../tunnels/tunnel.ts";

/** A node has some hundred connections to its control plane, and pods of a whole network may come over one agent. */
export const DESTINATIONS: AgentStreamKind = {
  kind: DESTINATION_KIND,
  maxOpen: 4_096,
  rate: { burst: 500, perSecond: 200 },
  serve: (stream, head, opener, context) => void serveDestination(stream, head, opener, context),
};

/**
 * One connection from a node to a destination of the control plane, from its head to its last byte. Never rejects.
 *
 * ```
 *  ACK ─▶ admit: listed, limits ─▶ resolve, check the address, dial ─▶ answer {"ok":true} ─▶ splice ─▶ log, metrics
 *              └─────────────────────────────┴─────────────────────▶ answer {"error"} ─▶ end
 * ```
 */
export async function serveDestination(
  stream: Stream,
  head: Buffer,
  opener: StreamOpener,
  context: ServerContext,
  lookup: Lookup = lookupAll,
): Promise<void> {
  const record = new DestinationRecord(opener, context);
  stream.accept();
  try {
    const request = parseDestination(head);
    record.request = request;
    const served = admit(request.target, opener, context);
    const socket = await dial(stream, request, record, context, lookup);
    await orEnd(record.onAllowed(socket), () => resetSocket(socket));
    stream.write(encodeDestinationAnswer());
    const { memory } = opener.cluster;
    memory.onConnection(CONNECTION_BYTES.tcp);
    const totals = await splice(stream, socket, {
      stallTimeoutMs: context.options.stallTimeoutMs,
      resetTarget: () => resetSocket(socket),
      corkTarget: true,
      pace: served.pace,
      memory,
    });
    memory.onConnection(-CONNECTION_BYTES.tcp);
    record.finish(totals.endedBy === "memory" ? "stalled" : "ok", totals.error, totals);
  } catch (error) {
    const refusal = stream.destroyed ? agentGone(error) : toCulvertError(error);
    endWithAnswer(stream, encodeDestinationAnswer(refusal));
    record.finish(refusal.code, refusal);
  }
}

/** The name may belong to a newer cluster by now; this agent is not one of its agents. */
function admit(target: Target, { cluster }: StreamOpener, context: ServerContext): ServedCluster {
  const { clusters, draining, files } = context;
  const served = clusters.get(cluster.name);
  if (served?.tunnels !== cluster) {
    throw new CulvertError("unknown_cluster", `cluster "${cluster.name}" is not served here any more`);
  }
  served.requireDestination(target);
  if (draining()) throw new CulvertError("draining", "this server is shutting down: try again");
  files.requireRoom("overloaded");
  context.audit()?.requireWritable();
  return served;
}

/** Resolves and dials; an agent that gives up meanwhile takes the dial with it. */
async function dial(
  stream: Stream,
  { target, timeoutMs }: DestinationRequest,
  record: DestinationRecord,
  { options, listeners }: ServerContext,
  lookup: Lookup,
): Promise<Socket> {
  const dialling = new TargetDial({
    target,
    timeoutMs: Math.min(timeoutMs, options.dialTimeoutMs),
    permit: (address) => addressRefusal(target, address, listeners()),
    lookup,
    dialler: "this server",
  });
  const onClose = (): void => dialling.cancel();
  stream.on("close", onClose);
  if (stream.destroyed) dialling.cancel();
  const startedAt = performance.now();
  try {
    const socket = await dialling.promise;
    if (stream.destroyed) {
      resetSocket(socket);
      throw agentGone();
    }
    record.dialled("ok", performance.now() - startedAt);
    return socket;
  } catch (error) {
    const { code, message } = toCulvertError(error);
    record.dialled(code, performance.now() - startedAt);
    // The descriptors and ports that are used up are this server's: another one may be asked.
    throw code === "agent_exhausted" ? new CulvertError("overloaded", message, { cause: error }) : error;
  } finally {
    stream.off("close", onClose);
  }
}

function agentGone(cause?: unknown): CulvertError {
  return new CulvertError("caller_gone", "the agent gave the request up before the answer", { cause });
}

/** The facts about one connection. At its end they become one log line and one set of metrics. */
class DestinationRecord {
  request: DestinationRequest | undefined;
  readonly #opener: StreamOpener;
  readonly #context: ServerContext;
  readonly #startedAt = performance.now();
  #dialMs: number | undefined;
  #audited: AuditedEntry | undefined;

  constructor(opener: StreamOpener, context: ServerContext) {
    this.#opener = opener;
    this.#context = context;
    context.metrics.destinations.opened(opener.cluster.name);
  }

  dialled(code: OutcomeCode | "ok", dialMs: number): void {
    this.#context.metrics.destinations.dialled(code, dialMs);
    if (code === "ok") this.#dialMs = dialMs;
  }

  /** The destination is connected: the audit trail says so before the agent is told. */
  onAllowed({ remoteAddress = "", remotePort = 0 }: Socket): Promise<void> | undefined {
    const trail = this.#context.audit();
    if (trail === undefined) return undefined;
    const address = formatTarget({ host: remoteAddress, port: remotePort });
    this.#audited = trail.allowed({ ...this.#auditedFacts(), address });
    return trail.written(this.#audited, new Cancellation());
  }

  #auditedFacts(): AuditedFacts {
    const { cluster, agent, link } = this.#opener;
    return {
      kind: "destination",
      cluster: cluster.name,
      by: partyOf(agent),
      source: link.remote,
      connection: this.request?.id,
      target: this.request && formatTarget(this.request.target),
      agent: agent.agentId,
    };
  }

  finish(code: OutcomeCode | "ok", error: Error | undefined, totals?: SpliceTotals): void {
    const { metrics, log, throttledLog } = this.#context;
    const { cluster, agent } = this.#opener;
    const { bytesUp = 0, bytesDown = 0 } = totals ?? {};
    const endedBy = totals?.endedBy === "caller" ? "agent" : totals?.endedBy;
    const trail = this.#context.audit();
    const why = code === "internal" ? undefined : error?.message;
    if (this.#audited === undefined) trail?.refused(this.#auditedFacts(), code, why);
    else trail?.ended(this.#audited, { outcome: code, reason: why, bytesUp, bytesDown, endedBy });
    metrics.destinations.finished(cluster.name, { outcome: code, bytesUp, bytesDown });
    const line = {
      id: this.request?.id,
      cluster: cluster.name,
      agent: agent.agentId,
      destination: this.request && formatTarget(this.request.target),
      outcome: code,
      dialMs: this.#dialMs === undefined ? undefined : rounded(this.#dialMs),
      bytesUp,
      bytesDown,
      durationMs: rounded(performance.now() - this.#startedAt),
      endedBy,
      ...(code === "internal" ? { err: error?.cause ?? error } : error && { reason: printable(error.message) }),
    };
    const level = code === "ok" ? "info" : outcome(code).level;
    if (totals === undefined) throttledLog.write(level, line, "destination refused to an agent", { kind: code });
    else log[level](line, "connection of an agent to a destination closed");
  }
}

function rounded(ms: number): number {
  return Math.round(ms * 10) / 10;
}
