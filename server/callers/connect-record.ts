import { isIP } from "node:net";
import type { Duplex } from "node:stream";
import type { Target } from "../../shared/address/target.ts";
import { QueueNode } from "../../shared/basics/collections.ts";
import type { Cancellation } from "../../shared/basics/promises.ts";
import { formatEndpoint } from "../../shared/listen/incoming-connection.ts";
import type { Endpoint } from "../../shared/listen/preface.ts";
import { CulvertError, type OutcomeCode, outcome, printable } from "../../shared/outcomes.ts";
import type { SpliceTotals } from "../../shared/relay/splice.ts";
import { claimedBy } from "../../shared/tls/identity.ts";
import type { OpenAnswer, OpenTimes } from "../../shared/wire/stream-head.ts";
import type { AuditedEntry, AuditedFacts } from "../audit/audit-trail.ts";
import type { AdmittedCredential, OpenConnect } from "../cluster-runtime/open-connects.ts";
import type { ClusterConnects } from "../metrics/live-metrics.ts";
import type { ConnectPhases } from "../metrics/server-metrics.ts";
import type { Choice } from "../tunnels/candidates.ts";
import type { ClusterTunnels } from "../tunnels/cluster-tunnels.ts";
import type { ServerContext } from "../tunnels/context.ts";
import type { OpenWatcher, StreamRequest } from "../tunnels/open-stream.ts";
import type { ServerHop } from "../tunnels/peer-finder.ts";
import { hopEndOf, hopEndSentence, isClosedCleanly, isSessionLost } from "../tunnels/stream-end.ts";
import type { Tunnel } from "../tunnels/tunnel.ts";
import type { Caller, CallerHost } from "./authenticate.ts";
import type { CallerEnd } from "./caller-end.ts";
import { ConnectTrace } from "./connect-trace.ts";

/** An agent that shuts down first drains, and closes when nothing is open or its drain time is over. */
const AGENT_DRAINED = new Error("the agent has shut down, and this was still open when its --drain-timeout was over");

let connects = 0;

/** The name of a caller, in the log, until it is authenticated. */
const UNKNOWN_CALLER = "unknown";

interface Ends {
  readonly bytesUp: number;
  readonly bytesDown: number;
  readonly endedBy: string;
}

/** The facts about one CONNECT. At its end they become one log line and one set of metrics, whatever has happened. */
export class ConnectRecord implements StreamRequest, OpenConnect, OpenWatcher {
  readonly id: string;
  readonly cluster: ClusterConnects;
  readonly deadline: number;
  readonly cancellation: Cancellation<CulvertError>;
  caller = UNKNOWN_CALLER;
  target = "";
  /** The target that was read from `target`; absent: it is no target. */
  asked: Target | undefined;
  /** The cluster of the target, if it is not the caller's. */
  targetCluster: string | undefined;
  tunnel: Tunnel | undefined;
  hop: ServerHop | undefined;
  choice: Choice | undefined;
  /** Number of bytes that the target got before the splice. */
  earlyBytes = 0;
  readonly place: QueueNode<OpenConnect> = new QueueNode(this);
  /** The caller's credential, which may be revoked; absent until it is authenticated, and over a unix socket. */
  credential: AdmittedCredential | undefined;
  readonly #callerEnd: CallerEnd;
  /** Where the caller connects from; absent over a unix socket. */
  readonly #source: Endpoint | undefined;
  readonly #context: ServerContext;
  readonly #startedAt = performance.now();
  #authenticated: Caller | undefined;
  /** Present where the trace of this CONNECT is kept. */
  #trace: ConnectTrace | undefined;
  #dialMs: number | undefined;
  #authenticatedAt = 0;
  /** The agent that has opened the stream was asked, and has answered. */
  #pickedAt = 0;
  #answeredAt = 0;
  /** How long the agent's steps took, where it says so. */
  #times: OpenTimes | undefined;
  /** The address that the agent has dialled, where it says so. */
  #address: string | undefined;
  /** Present: its decision is in the audit trail. */
  #audited: AuditedEntry | undefined;
  /** Why its caller is not permitted any more. */
  #refusal: CulvertError | undefined;

  constructor(
    callerEnd: CallerEnd,
    { kind, tunnels: cluster }: CallerHost,
    cancellation: Cancellation<CulvertError>,
    context: ServerContext,
  ) {
    const { options, metrics } = context;
    // In a fleet the logs of several servers have the same id: it begins with the server that the CONNECT came to.
    const prefix = options.directory.length > 0 ? `${options.serverId}/` : "";
    this.id = `${prefix}${(++connects).toString(36)}`;
    this.cluster = cluster;
    this.deadline = this.#startedAt + options.connectTimeoutMs;
    this.cancellation = cancellation;
    this.#callerEnd = callerEnd;
    this.#source = kind === "unix" ? undefined : callerEnd.connection.source;
    this.#context = context;
    metrics.connectionOpened(cluster);
  }

  onAuthenticated(caller: Caller): void {
    this.#authenticatedAt = performance.now();
    this.#authenticated = caller;
    this.caller = caller.name;
    this.#trace?.onAuthenticated();
  }

  /** `traceparent`: the caller's. */
  beginTrace(traceparent: string | undefined): void {
    this.#trace = ConnectTrace.begin(this.#startedAt, traceparent, this.#context);
  }

  get traceparent(): string | undefined {
    return this.#trace?.traceparent;
  }

  /** The agent's answer: the address that it has dialled, and the times of its steps. */
  get watch(): OpenWatcher {
    return this;
  }

  onPicked(_way: Tunnel | ServerHop, before: CulvertError | undefined): void {
    this.#pickedAt = performance.now();
    this.#trace?.onPicked(before);
  }

  onAcknowledged(): void {}

  onAnswer(answer: OpenAnswer): void {
    this.#answeredAt = performance.now();
    this.#trace?.onAnswer(answer);
    if (!answer.ok) return;
    this.#address = answer.address;
    this.#times = answer.times;
  }

  /** The target is connected, and its caller may have it: the audit trail says so first (`AuditTrail.written`). */
  onAllowed(): Promise<void> | undefined {
    const trail = this.#context.audit();
    if (trail === undefined) return undefined;
    this.#audited = trail.allowed(this.#auditedFacts());
    return trail.written(this.#audited, this.cancellation);
  }

  #auditedFacts(): AuditedFacts {
    const { id: connection, cluster, target, targetCluster, tunnel, hop } = this;
    const source = this.#source;
    const { proof, subject } = this.#authenticated ?? {};
    const claimed = this.#authenticated === undefined ? this.#claimedCertificate() : undefined;
    return {
      kind: "connect",
      cluster: cluster.name,
      by: { peer: proof?.kind === "certificate" ? proof.peer : undefined, subject, unixSocket: !source, claimed },
      source: source && formatEndpoint(source),
      connection,
      target,
      targetCluster,
      address: this.#address ?? (this.#isAddress && tunnel !== undefined ? target : undefined),
      agent: tunnel?.agent.agentId ?? hop?.agent,
      peer: hop?.serverId,
    };
  }

  /** The target is connected; the caller gets its answer next. */
  onEstablished(): void {
    this.#dialMs = performance.now() - this.#startedAt;
    this.#context.metrics.connectionEstablished(this.cluster, this.#dialMs, this.#phases());
    this.#endTrace();
    const { choice, target, tunnel } = this;
    if (choice?.claimedBy === undefined) return;
    // The line at the end of the connection may come hours later.
    const line = { cluster: this.cluster.name, target, agent: tunnel?.agent.agentId, ...choice };
    const once = { kind: `${target} ${choice.claimedBy}`, lines: 1 };
    this.#context.throttledLog.write("warn", line, "no agent that claims the target is there: another was asked", once);
  }

  #endTrace(refusal?: CulvertError): void {
    this.#trace?.end(
      {
        "http.request.method": "CONNECT",
        "server.address": this.asked?.host,
        "server.port": this.asked?.port,
        "client.address": this.#source?.address,
        "culvert.cluster": this.cluster.name,
        "culvert.caller": this.caller,
        "culvert.connection": this.id,
        "culvert.agent": this.tunnel?.agent.agentId ?? this.hop?.agent,
        "culvert.peer": this.hop?.serverId,
      },
      refusal,
    );
  }

  /** It is the one that is dialled, and needs no lookup. */
  get #isAddress(): boolean {
    return this.asked !== undefined && isIP(this.asked.host) !== 0;
  }

  #phases(): ConnectPhases {
    const { dnsMs = 0, dialMs: dial } = this.#times ?? {};
    return {
      authenticate: this.#authenticatedAt - this.#startedAt,
      pick: this.#pickedAt - this.#authenticatedAt,
      open: Math.max(0, this.#answeredAt - this.#pickedAt - dnsMs - (dial ?? 0)),
      resolve: this.#times === undefined || this.#isAddress ? undefined : dnsMs,
      dial,
    };
  }

  /** Refuses the CONNECT, or resets it if it was answered already. */
  refuse(refusal: CulvertError): void {
    if (this.#refusal !== undefined) return;
    this.#refusal = refusal;
    if (this.#dialMs === undefined) this.cancellation.cancel(refusal);
    else this.#callerEnd.reset();
  }

  /** The CONNECT is refused, and was never established. */
  onRefused(error: CulvertError): void {
    // A peer that is not authenticated does not choose what is traced.
    if (this.#authenticated === undefined) this.beginTrace(undefined);
    this.#endTrace(error);
    const byAgent = this.tunnel !== undefined ? isCausedByAgent(error.code) : error.refusedBy === "agent";
    const endedBy = error.code === "caller_gone" ? "caller" : byAgent ? "agent" : "server";
    this.#finish(error.code, error, { bytesUp: 0, bytesDown: 0, endedBy });
  }

  /** The splice has ended. */
  onEnded(totals: SpliceTotals, stream: Duplex, cluster: ClusterTunnels): void {
    const [code, error = totals.error] = this.#causeOf(totals, stream, cluster);
    if (this.#refusal !== undefined) this.#context.metrics.connectionWithdrawn(this.cluster.name);
    const bytesUp = totals.bytesUp + this.earlyBytes;
    const endedBy = code === "ok" ? totals.endedBy : code === "agent_lost" ? "agent" : "server";
    this.#finish(code, error, { bytesUp, bytesDown: totals.bytesDown, endedBy });
  }

  /** Why the splice has ended. If no error is returned, `totals.error` is logged. */
  #causeOf(
    { endedBy }: SpliceTotals,
    stream: Duplex,
    { closedBecause }: ClusterTunnels,
  ): readonly [code: OutcomeCode | "ok", error?: Error] {
    const { hop } = this;
    if (this.#refusal !== undefined) return [this.#refusal.code, this.#refusal];
    if (endedBy === "memory") return ["stalled"];
    if (!isSessionLost(stream)) {
      // It ended cleanly or by a reset; over a hop, the other server's reset code says why.
      const end = hop && hopEndOf(stream);
      return hop === undefined || end === undefined ? ["ok"] : [end, new Error(hopEndSentence(end, hop.serverId))];
    }
    if (this.#context.draining()) return ["draining"];
    if (hop !== undefined) return ["peer_lost"];
    // A cluster that is not served any more has closed the tunnel itself, after its drain time.
    const byAgent = closedBecause === undefined && isClosedCleanly(stream) && this.tunnel?.leaving === true;
    return byAgent ? ["agent_lost", AGENT_DRAINED] : ["agent_lost"];
  }

  /** Subject, issuer and serial number of the certificate that the caller has presented, accepted or not. */
  #claimedCertificate(): string | undefined {
    return claimedBy(this.#callerEnd.connection.socket);
  }

  /** Empty over a unix socket. */
  get address(): string {
    return this.#source?.address ?? "";
  }

  /** Without the port, so that retries of one caller count as one. */
  get #from(): string {
    const { address } = this;
    if (address === "") return this.caller;
    return this.caller === UNKNOWN_CALLER ? address : `${this.caller} at ${address}`;
  }

  #endAudited(code: OutcomeCode | "ok", error: Error | undefined, totals: Ends): void {
    const trail = this.#context.audit();
    if (trail === undefined) return;
    const reason = code === "internal" ? undefined : error?.message;
    if (this.#audited === undefined) trail.refused(this.#auditedFacts(), code, reason);
    else trail.ended(this.#audited, { outcome: code, reason, ...totals });
  }

  #finish(code: OutcomeCode | "ok", error: Error | undefined, totals: Ends): void {
    const { metrics, log, throttledLog } = this.#context;
    this.credential?.leave(this);
    this.#endAudited(code, error, totals);
    const durationMs = performance.now() - this.#startedAt;
    const { bytesUp, bytesDown, endedBy } = totals;
    const established = this.#dialMs !== undefined;
    const { cluster, target } = this;
    const source = this.#source;
    const isUnknown = code === "unauthenticated" && !established;
    const certificate = isUnknown ? this.#claimedCertificate() : undefined;
    const fault = error instanceof CulvertError ? error.fault : undefined;
    const refusal =
      established || error === undefined || code === "caller_gone"
        ? undefined
        : { from: this.#from, target, reason: error.message, certificate, fault };
    metrics.connectionFinished({ outcome: code, cluster, established, bytesUp, bytesDown, durationMs, refusal });
    const level = code === "ok" ? "info" : outcome(code).level;
    if (!log.isLevelEnabled(level)) return;
    // Fields without a value are not written. All lines have the same fields, because copying objects is slow.
    const line = {
      id: this.id,
      cluster: this.cluster.name,
      caller: this.caller,
      remote: source && formatEndpoint(source),
      certificate,
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
      endedBy,
      // A fault of the server is logged with its stack, everything else as a sentence.
      err: code === "internal" ? (error?.cause ?? error) : undefined,
      reason: code === "internal" ? undefined : error && printable(error.message),
    };
    // A caller alone can cause any number of these, so they are throttled.
    if (!established) throttledLog.write(level, line, "CONNECT failed", { kind: code });
    else if (code === "stalled") throttledLog.write(level, line, "connection ended: its reader had stopped");
    else log[level](line, "connection closed");
  }
}

/** Whether the agent that was asked has caused this end. */
function isCausedByAgent(code: OutcomeCode): boolean {
  return outcome(code).fromAgent === true || code === "agent_lost" || code === "agent_timeout";
}

function rounded(ms: number): number {
  return Math.round(ms * 10) / 10;
}
