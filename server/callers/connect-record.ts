import type { Cancellation } from "../../shared/basics/promises.ts";
import { formatEndpoint } from "../../shared/listen/incoming-connection.ts";
import type { Endpoint } from "../../shared/listen/preface.ts";
import { type CulvertError, type OutcomeCode, outcome, printable } from "../../shared/outcomes.ts";
import type { SpliceTotals } from "../../shared/relay/splice.ts";
import type { Logger } from "../../shared/runtime/logger.ts";
import type { ThrottledLog } from "../../shared/runtime/throttled-log.ts";
import type { ClusterConnects } from "../metrics/cluster-figures.ts";
import type { ServerMetrics } from "../metrics/server-metrics.ts";
import type { Choice } from "../tunnels/candidates.ts";
import type { OpenConnect } from "../tunnels/open-connects.ts";
import type { OpenContext, ServerHop } from "../tunnels/open-stream.ts";
import type { Tunnel } from "../tunnels/tunnel.ts";

export interface ConnectRecordDeps {
  readonly metrics: ServerMetrics;
  readonly log: Logger;
  /** The throttled log for callers that are not authenticated: they may come as often as they like. */
  readonly throttledLog: ThrottledLog;
}

export interface ConnectRecordOptions {
  /** The cluster of the listener that the CONNECT came to. */
  readonly cluster: ClusterConnects;
  /** Absent on a unix socket. */
  readonly source: Endpoint | undefined;
  readonly timeoutMs: number;
  /** Comes before the number in its id, where several servers write about one CONNECT. */
  readonly idPrefix: string;
  /** Cancelled when the caller has left or is refused. */
  readonly cancellation: Cancellation<CulvertError>;
}

let connects = 0;

/** A message of the log for a CONNECT that got no 200. */
const FAILED = "CONNECT failed";
const UNAUTHENTICATED = "unknown";

/** The facts about one CONNECT. At its end they become one log line and one set of metrics, whatever has happened. */
export class ConnectRecord implements OpenContext {
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
  /** Present once the caller is authenticated, unless it came over a unix socket. */
  open: OpenConnect | undefined;
  readonly #source: Endpoint | undefined;
  readonly #deps: ConnectRecordDeps;
  readonly #startedAt = performance.now();
  #dialMs: number | undefined;

  constructor(options: ConnectRecordOptions, deps: ConnectRecordDeps) {
    const { cluster, source, timeoutMs, cancellation, idPrefix } = options;
    this.id = `${idPrefix}${(++connects).toString(36)}`;
    this.cluster = cluster;
    this.deadline = this.#startedAt + timeoutMs;
    this.cancellation = cancellation;
    this.#source = source;
    this.#deps = deps;
    deps.metrics.connectionOpened(cluster);
  }

  /** Part of the time within which a CONNECT is answered that is left, ms. */
  leftMs(): number {
    return this.deadline - performance.now();
  }

  /** The CONNECT is answered with 200. */
  onEstablished(): void {
    this.#dialMs = performance.now() - this.#startedAt;
    this.#deps.metrics.connectionEstablished(this.cluster, this.#dialMs);
    if (this.choice?.claimedBy !== undefined) this.#onPassedOver(this.choice);
  }

  /** The line at the end of the connection may come hours later. */
  #onPassedOver(choice: Choice): void {
    const line = { cluster: this.cluster.name, target: this.target, agent: this.tunnel?.agent.agentId, ...choice };
    const once = `${this.target} ${choice.claimedBy}`;
    this.#deps.throttledLog.write("warn", line, "no agent that claims the target is there: another was asked", {
      once,
    });
  }

  /** The CONNECT gets no 200. */
  onRefused(error: CulvertError): void {
    const isAgents = this.tunnel !== undefined ? isOfAgent(error.code) : error.refusedBy === "agent";
    const endedBy = error.code === "caller_gone" ? "caller" : isAgents ? "agent" : "server";
    this.#finish(error.code, error, { bytesUp: 0, bytesDown: 0, endedBy });
  }

  /** The credential of the caller is not accepted any more. */
  onWithdrawn({ bytesUp, bytesDown }: SpliceTotals, refusal: CulvertError): void {
    this.#deps.metrics.connectionWithdrawn(this.cluster.name);
    this.#finish(refusal.code, refusal, { bytesUp: bytesUp + this.earlyBytes, bytesDown, endedBy: "server" });
  }

  /** The splice has ended. `lost`: the tunnel has ended, or the memory of the connection was needed. */
  onSpliced(totals: SpliceTotals, lost: "agent_lost" | "peer_lost" | "draining" | "stalled" | undefined): void {
    const { bytesDown, error } = totals;
    const bytesUp = totals.bytesUp + this.earlyBytes;
    const endedBy = lost === undefined ? totals.endedBy : lost === "agent_lost" ? "agent" : "server";
    this.#finish(lost ?? "ok", error, { bytesUp, bytesDown, endedBy });
  }

  /** Without the port: a caller that tries again and again is one. */
  get #from(): string {
    const address = this.#source?.address;
    if (address === undefined) return this.caller;
    return this.caller === UNAUTHENTICATED ? address : `${this.caller} at ${address}`;
  }

  #finish(
    code: OutcomeCode | "ok",
    error: Error | undefined,
    end: { bytesUp: number; bytesDown: number; endedBy: string },
  ): void {
    const { metrics, log, throttledLog } = this.#deps;
    this.open?.over();
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
    if (code === "unauthenticated" && !established) throttledLog.write(level, line, FAILED);
    else if (code === "stalled") throttledLog.write(level, line, "connection ended: memory is short");
    else log[level](line, established ? "connection closed" : FAILED);
  }
}

/** Whether the agent that was asked has caused this end. */
function isOfAgent(code: OutcomeCode): boolean {
  return outcome(code).fromAgent === true || code === "agent_lost" || code === "agent_timeout";
}

function rounded(ms: number): number {
  return Math.round(ms * 10) / 10;
}
