import { formatEndpoint } from "../../shared/listen/incoming-connection.ts";
import type { Endpoint } from "../../shared/listen/proxy-protocol.ts";
import { type CulvertError, type OutcomeCode, outcome, printable } from "../../shared/outcomes.ts";
import type { SpliceTotals } from "../../shared/relay/splice.ts";
import type { Logger } from "../../shared/runtime/logger.ts";
import type { ThrottledLog } from "../../shared/runtime/throttled-log.ts";
import type { ClusterConnects, ServerMetrics } from "../metrics/server-metrics.ts";
import type { OpenConnect } from "../tunnels/open-connects.ts";

export interface AccountDeps {
  readonly metrics: ServerMetrics;
  readonly log: Logger;
  /** For those who have not proved who they are: they come as often as they like. */
  readonly throttledLog: ThrottledLog;
}

let connections = 0;

/** It has got no answer 200. */
const FAILED = "CONNECT failed";
/** Of whoever has not proved who he is. */
const UNKNOWN = "unknown";

/** What is told of one connection when it is over: one log line and one metric, whatever happened. */
export class Account {
  readonly id = (++connections).toString(36);
  caller = UNKNOWN;
  target = "";
  /** Whose door it came through: it asks for nothing else. */
  readonly cluster: ClusterConnects;
  agent: string | undefined;
  /** Bytes that the target got before the splice. */
  early = 0;
  /** Subject, issuer and serial number of a certificate that was shown and is not believed. */
  certificate: string | undefined;
  /** Present once it is known who has sent it, unless it came over a unix socket. */
  open: OpenConnect | undefined;
  readonly #source: Endpoint | undefined;
  readonly #deadlineMs: number;
  readonly #deps: AccountDeps;
  readonly #startedAt = performance.now();
  #dialMs: number | undefined;

  /** `source`: where it came from, as long as a socket that is cut still knows; a unix socket never does. */
  constructor(cluster: ClusterConnects, source: Endpoint | undefined, deadlineMs: number, deps: AccountDeps) {
    this.cluster = cluster;
    this.#source = source;
    this.#deadlineMs = deadlineMs;
    this.#deps = deps;
    deps.metrics.connectionOpened(cluster);
  }

  /** Of the time within which every CONNECT is answered. */
  leftMs(): number {
    return this.#deadlineMs - (performance.now() - this.#startedAt);
  }

  onEstablished(): void {
    this.#dialMs = performance.now() - this.#startedAt;
    this.#deps.metrics.connectionEstablished(this.cluster, this.#dialMs);
  }

  /** What its caller was admitted by counts no more. */
  onWithdrawn({ bytesUp, bytesDown }: SpliceTotals, refusal: CulvertError): void {
    this.#deps.metrics.connectionWithdrawn(this.cluster.name);
    this.#finish(refusal.code, refusal, { bytesUp: bytesUp + this.early, bytesDown, endedBy: "server" });
  }

  /**
   * `lost`: the tunnel has gone from under the stream, by the agent's loss or at the end of our own drain, or its memory was
   * needed.
   */
  onSpliced(totals: SpliceTotals, lost: "agent_lost" | "draining" | "stalled" | undefined): void {
    const { bytesDown, error } = totals;
    const bytesUp = totals.bytesUp + this.early;
    const endedBy = lost === undefined ? totals.endedBy : lost === "agent_lost" ? "agent" : "server";
    this.#finish(lost ?? "ok", error, { bytesUp, bytesDown, endedBy });
  }

  onRefused(error: CulvertError): void {
    const isAgents = this.agent !== undefined && isOfAgent(error.code);
    const endedBy = error.code === "caller_gone" ? "caller" : isAgents ? "agent" : "server";
    this.#finish(error.code, error, { bytesUp: 0, bytesDown: 0, endedBy });
  }

  /** Without the port: who tries again and again is one. */
  get #from(): string {
    const address = this.#source?.address;
    if (address === undefined) return this.caller;
    return this.caller === UNKNOWN ? address : `${this.caller} at ${address}`;
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
    const line = {
      id: this.id,
      cluster: this.cluster.name,
      caller: this.caller,
      remote: this.#source && formatEndpoint(this.#source),
      certificate: this.certificate,
      target: this.target,
      agent: this.agent,
      outcome: code,
      dialMs: this.#dialMs === undefined ? undefined : rounded(this.#dialMs),
      bytesUp,
      bytesDown,
      durationMs: rounded(durationMs),
      endedBy: end.endedBy,
      // A bug shows its stack; everything else is a sentence.
      ...(code === "internal" ? { err: error?.cause ?? error } : error && { reason: printable(error.message) }),
    };
    if (code === "unauthenticated" && !established) throttledLog.write(level, line, FAILED);
    else if (code === "stalled") throttledLog.write(level, line, "connection ended: memory is short");
    else log[level](line, established ? "connection closed" : FAILED);
  }
}

/** Whether such an end is the agent's, if one was asked. */
function isOfAgent(code: OutcomeCode): boolean {
  return outcome(code).fromAgent === true || code === "agent_lost" || code === "agent_timeout";
}

function rounded(ms: number): number {
  return Math.round(ms * 10) / 10;
}
