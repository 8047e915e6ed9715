import type { Duplex } from "node:stream";
import { formatTarget, parseTarget, shownAuthority, type Target } from "../../shared/address/target.ts";
import { QueueNode } from "../../shared/basics/collections.ts";
import type { Cancellation } from "../../shared/basics/promises.ts";
import { CONNECTION_BYTES, type MemoryAccount } from "../../shared/limits/memory-account.ts";
import type { RequestHeader } from "../../shared/listen/first-request.ts";
import { formatEndpoint, type IncomingConnection } from "../../shared/listen/incoming-connection.ts";
import type { Endpoint } from "../../shared/listen/preface.ts";
import { CulvertError, type OutcomeCode, outcome, printable, toCulvertError } from "../../shared/outcomes.ts";
import { resetSocket } from "../../shared/relay/reset.ts";
import { type SpliceTotals, splice } from "../../shared/relay/splice.ts";
import type { Logger } from "../../shared/runtime/logger.ts";
import type { ThrottledLog } from "../../shared/runtime/throttled-log.ts";
import { claimedBy } from "../../shared/tls/identity.ts";
import type { Stream } from "../../shared/yamux/stream.ts";
import type { ClusterRuntime } from "../cluster-runtime/cluster-runtime.ts";
import type { AdmittedCredential, OpenConnect } from "../cluster-runtime/open-connects.ts";
import type { ClusterConnects } from "../metrics/live-metrics.ts";
import type { ServerMetrics } from "../metrics/server-metrics.ts";
import type { ServerOptions } from "../options/options.ts";
import type { Choice } from "../tunnels/candidates.ts";
import type { ClusterTunnels } from "../tunnels/cluster-tunnels.ts";
import { type OpenContext, type OpenStreamDeps, openStream, type ServerHop } from "../tunnels/open-stream.ts";
import { hopEndOf, hopEndSentence, isClosedCleanly, isSessionLost } from "../tunnels/stream-end.ts";
import type { Tunnel } from "../tunnels/tunnel.ts";
import { authenticateCaller, type CallerHost, challenges } from "./authenticate.ts";
import { PendingCaller, refuseConnect } from "./reply.ts";

type ServedCluster = Pick<ClusterRuntime, "tunnels" | "requireAdmission" | "pace">;

interface ServedClusters {
  get(name: string): ServedCluster | undefined;
  /** The other cluster that these callers reach by its name as the target's host. */
  reachedBy(callers: string, target: Target): ServedCluster | undefined;
}

export interface ConnectDeps extends OpenStreamDeps {
  readonly options: OpenStreamDeps["options"] &
    Pick<ServerOptions, "maxTokenVerifications" | "establishedGapMs" | "stallTimeoutMs">;
  readonly metrics: ServerMetrics;
  readonly log: Logger;
  /** The log of refusals. */
  readonly throttledLog: ThrottledLog;
  /** Comes before the number in the id of a CONNECT, where several servers write about one. */
  readonly idPrefix: string;
  /** The clusters that are served now. */
  readonly clusters: ServedClusters;
  /**
   * The account that is charged for what callers send before they are admitted. Otherwise unauthenticated peers could
   * use up the memory of a cluster.
   */
  readonly unauthenticatedMemory: Pick<MemoryAccount, "hold" | "enter">;
  /** Throws `overloaded` when this process has hardly a file descriptor left. */
  readonly files: { requireRoom(code: "overloaded"): void };
}

/**
 * One CONNECT, from its request to its last byte:
 *
 * ```
 *  authenticate ─▶ admit: cluster, target, limits ─▶ open a stream ─▶ 200 ─▶ splice ─▶ log line and metrics
 *       └────────────────────┴────────────────────────────┴─▶ one status line of the table of outcomes
 * ```
 */
export async function connect(
  request: RequestHeader,
  connection: IncomingConnection,
  host: CallerHost,
  deps: ConnectDeps,
): Promise<void> {
  const { options } = deps;
  const { socket } = connection;
  const pending = new PendingCaller(socket, deps.unauthenticatedMemory);
  const record = new ConnectRecord(host, connection, pending, deps);
  try {
    const bounds = { deadlineMs: options.connectTimeoutMs, most: options.maxTokenVerifications };
    const caller = await authenticateCaller(host, connection, request.headers, bounds);
    record.caller = caller.name;
    if (caller.proof !== undefined && host.kind === "tls") record.admitted = host.open.add(caller.proof, record);
    record.target = shownAuthority(request.url ?? ""); // as it was asked for, even if it is no target
    const target = parseTarget(request.url);
    record.target = formatTarget(target);
    const cluster = admit(target, host, record, deps);
    if (deps.draining()) throw new CulvertError("draining", "this server is shutting down: try again");
    deps.files.requireRoom("overloaded");
    const { memory } = cluster.tunnels;
    pending.chargeTo(memory);

    const stream = await openStream(target, cluster.tunnels, record, deps);
    if (pending.cancellation.reason !== undefined) {
      stream.destroy();
      throw pending.cancellation.reason;
    }
    record.onEstablished();
    record.earlyBytes = await pending.establish(stream, host.kind === "unix" ? options.establishedGapMs : 0);
    memory.onConnection(CONNECTION_BYTES[host.kind]);
    // Not awaited: otherwise the request would be kept for as long as the connection.
    const totals = splice(socket, stream, {
      stallTimeoutMs: options.stallTimeoutMs,
      corkCaller: true,
      resetCaller: () => resetSocket(socket),
      pace: cluster.pace,
      memory,
    });
    void totals.then((ended) => {
      memory.onConnection(-CONNECTION_BYTES[host.kind]);
      record.onEnded(ended, stream, cluster.tunnels);
    });
  } catch (error) {
    pending.release();
    const refusal = toCulvertError(error);
    if (refusal.code === "unauthenticated") record.certificate = claimedBy(socket);
    record.onRefused(refusal);
    refuseConnect(socket, refusal, challenges(host));
  }
}

/**
 * The cluster that the CONNECT goes to: the caller's own, or another one that is named by the target's host and lets
 * it. The rules and limits of both apply.
 */
function admit(target: Target, host: CallerHost, record: ConnectRecord, deps: ConnectDeps): ServedCluster {
  const { name } = host.tunnels;
  const own = deps.clusters.get(name);
  // A cluster of this name that was added later has other callers.
  if (own?.tunnels !== host.tunnels) {
    throw new CulvertError("unknown_cluster", `cluster "${name}" is not served here any more`);
  }
  own.requireAdmission(target);
  const other = deps.clusters.reachedBy(name, target);
  if (other === undefined) return own;
  record.targetCluster = other.tunnels.name;
  other.requireAdmission(target);
  return other;
}

/** An agent that shuts down first drains, and closes when nothing is open or its drain time is over. */
const AGENT_DRAINED = new Error("the agent has shut down, and this was still open when its --drain-timeout was over");

// ── the log line and the metrics of a CONNECT ────────────────────────────────────────────────────────────────────────

let connects = 0;

/** A message of the log for a CONNECT that got no 200. */
const FAILED = "CONNECT failed";
const UNAUTHENTICATED = "unknown";

/** The facts about one CONNECT. At its end they become one log line and one set of metrics, whatever has happened. */
class ConnectRecord implements OpenContext, OpenConnect {
  readonly id: string;
  readonly cluster: ClusterConnects;
  readonly deadline: number;
  readonly cancellation: Cancellation<CulvertError>;
  caller = UNAUTHENTICATED;
  target = "";
  /** Present: the target is of this cluster, and not of the caller's. */
  targetCluster: string | undefined;
  tunnel: Tunnel | undefined;
  hop: ServerHop | undefined;
  choice: Choice | undefined;
  /** Number of bytes that the target got before the splice. */
  earlyBytes = 0;
  /** Subject, issuer and serial number of a certificate that was presented and not accepted. */
  certificate: string | undefined;
  readonly place: QueueNode<OpenConnect> = new QueueNode(this);
  /** The credential of its caller, which may be revoked; absent until that is known, and over a unix socket. */
  admitted: AdmittedCredential | undefined;
  readonly #socket: Duplex;
  readonly #source: Endpoint | undefined;
  readonly #deps: ConnectDeps;
  readonly #startedAt = performance.now();
  #dialMs: number | undefined;
  /** Why its caller is not permitted any more. */
  #refusal: CulvertError | undefined;

  constructor(host: CallerHost, connection: IncomingConnection, pending: PendingCaller, deps: ConnectDeps) {
    const cluster = host.tunnels;
    this.id = `${deps.idPrefix}${(++connects).toString(36)}`;
    this.cluster = cluster;
    this.deadline = this.#startedAt + deps.options.connectTimeoutMs;
    this.cancellation = pending.cancellation;
    this.#socket = connection.socket;
    this.#source = host.kind === "unix" ? undefined : connection.source;
    this.#deps = deps;
    deps.metrics.connectionOpened(cluster);
  }

  /** The target is reached: the answer, 200, comes next. */
  onEstablished(): void {
    this.#dialMs = performance.now() - this.#startedAt;
    this.#deps.metrics.connectionEstablished(this.cluster, this.#dialMs);
    const { choice, target, tunnel } = this;
    if (choice?.claimedBy === undefined) return;
    // The line at the end of the connection may come hours later.
    const line = { cluster: this.cluster.name, target, agent: tunnel?.agent.agentId, ...choice };
    const once = { kind: `${target} ${choice.claimedBy}`, lines: 1 };
    this.#deps.throttledLog.write("warn", line, "no agent that claims the target is there: another was asked", once);
  }

  /** Refuses the CONNECT, or resets it if it was answered already. */
  refuse(refusal: CulvertError): void {
    if (this.#refusal !== undefined) return;
    this.#refusal = refusal;
    if (this.#dialMs === undefined) this.cancellation.cancel(refusal);
    else resetSocket(this.#socket);
  }

  /** The CONNECT gets no 200. */
  onRefused(error: CulvertError): void {
    const byAgent = this.tunnel !== undefined ? isOfAgent(error.code) : error.refusedBy === "agent";
    const endedBy = error.code === "caller_gone" ? "caller" : byAgent ? "agent" : "server";
    this.#finish(error.code, error, { bytesUp: 0, bytesDown: 0, endedBy });
  }

  /** The splice has ended. */
  onEnded(totals: SpliceTotals, stream: Stream, cluster: ClusterTunnels): void {
    const [code, error = totals.error] = this.#causeOf(totals, stream, cluster);
    if (this.#refusal !== undefined) this.#deps.metrics.connectionWithdrawn(this.cluster.name);
    const bytesUp = totals.bytesUp + this.earlyBytes;
    const endedBy = code === "ok" ? totals.endedBy : code === "agent_lost" ? "agent" : "server";
    this.#finish(code, error, { bytesUp, bytesDown: totals.bytesDown, endedBy });
  }

  /** Why the splice has ended; without an error the one of the splice says it. */
  #causeOf(
    { endedBy }: SpliceTotals,
    stream: Stream,
    { closedBecause }: ClusterTunnels,
  ): readonly [code: OutcomeCode | "ok", error?: Error] {
    const { hop } = this;
    if (this.#refusal !== undefined) return [this.#refusal.code, this.#refusal];
    if (endedBy === "memory") return ["stalled"];
    if (!isSessionLost(stream)) {
      // By a clean end, or by a reset, which another server may have made for a reason of its own.
      const end = hop && hopEndOf(stream);
      return hop === undefined || end === undefined ? ["ok"] : [end, new Error(hopEndSentence(end, hop.serverId))];
    }
    if (this.#deps.draining()) return ["draining"];
    if (hop !== undefined) return ["peer_lost"];
    // A cluster that is not served any more has closed the tunnel itself, after its drain time.
    const byAgent = closedBecause === undefined && isClosedCleanly(stream) && this.tunnel?.leaving === true;
    return byAgent ? ["agent_lost", AGENT_DRAINED] : ["agent_lost"];
  }

  /** Empty over a unix socket. */
  get address(): string {
    return this.#source?.address ?? "";
  }

  /** Without the port, so that retries of one caller count as one. */
  get #from(): string {
    const { address } = this;
    if (address === "") return this.caller;
    return this.caller === UNAUTHENTICATED ? address : `${this.caller} at ${address}`;
  }

  #finish(
    code: OutcomeCode | "ok",
    error: Error | undefined,
    end: { bytesUp: number; bytesDown: number; endedBy: string },
  ): void {
    const { metrics, log, throttledLog } = this.#deps;
    this.admitted?.leave(this);
    const durationMs = performance.now() - this.#startedAt;
    const { bytesUp, bytesDown } = end;
    const established = this.#dialMs !== undefined;
    const { cluster, target } = this;
    const refusal =
      established || error === undefined || code === "caller_gone"
        ? undefined
        : { from: this.#from, target, reason: error.message };
    metrics.connectionFinished({ outcome: code, cluster, established, bytesUp, bytesDown, durationMs, refusal });
    const level = code === "ok" ? "info" : outcome(code).level;
    if (!log.isLevelEnabled(level)) return;
    // Fields without a value are not written. All lines have the same fields, because copying objects is slow.
    const line = {
      id: this.id,
      cluster: this.cluster.name,
      caller: this.caller,
      remote: this.#source && formatEndpoint(this.#source),
      certificate: this.certificate,
      target: this.target,
      targetCluster: this.targetCluster,
      agent: this.tunnel?.agent.agentId ?? this.hop?.agent,
      peer: this.hop?.serverId,
      strategy: this.choice?.strategy,
      claimedBy: this.choice?.claimedBy,
      outcome: code,
      dialMs: this.#dialMs === undefined ? undefined : rounded(this.#dialMs),
      bytesUp,
      bytesDown,
      durationMs: rounded(durationMs),
      endedBy: end.endedBy,
      // A fault of the server is logged with its stack, everything else as a sentence.
      err: code === "internal" ? (error?.cause ?? error) : undefined,
      reason: code === "internal" ? undefined : error && printable(error.message),
    };
    // A caller can be refused as often as it likes, and needs nobody else for that.
    if (!established) throttledLog.write(level, line, FAILED, { kind: code });
    else if (code === "stalled") throttledLog.write(level, line, "connection ended: memory is short");
    else log[level](line, "connection closed");
  }
}

/** Whether the agent that was asked has caused this end. */
function isOfAgent(code: OutcomeCode): boolean {
  return outcome(code).fromAgent === true || code === "agent_lost" || code === "agent_timeout";
}

function rounded(ms: number): number {
  return Math.round(ms * 10) / 10;
}
