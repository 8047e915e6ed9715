import { type CarrierLost, LinkLost, type ResumeReport } from "../../shared/link/link-events.ts";
import { PLANNED } from "../../shared/runtime/common-metrics.ts";
import { ThrottledLog } from "../../shared/runtime/throttled-log.ts";
import type { AgentContext } from "../context/context.ts";
import type { AgentMetrics } from "../context/metrics.ts";
import type { Connection } from "./connection.ts";
import type { Lesson } from "./path.ts";
import { isDraining, type Retry } from "./retry.ts";

/** The log lines and the counters of one uplink. */
export class UplinkLog {
  readonly #metrics: AgentMetrics;
  readonly #log: ThrottledLog;
  /** Connections and resumes so far: the first failure after one of them is a new one for the log. */
  #successes = 0;

  constructor(server: string, { metrics, log }: AgentContext) {
    this.#metrics = metrics;
    this.#log = new ThrottledLog(log.child({ server }));
  }

  connected({ link, welcome: { serverId } }: Connection): void {
    this.#metrics.uplinkConnected();
    this.#successes++;
    this.#log.write("info", { serverId, link: link.id, remote: link.remote }, "uplink connected");
  }

  /** `shutdown`: the reason to log where the server that drained this agent shuts down cleanly. */
  failed(error: unknown, retry: Retry, attempt: number, shutdown: string | undefined): void {
    const { waitMs, refused, label, fault } = retry;
    const reason = shutdown ?? retry.reason;
    this.#metrics.attemptFailed(label);
    const line = { attempt, waitMs, reason, ...(fault && !shutdown && { fault }) };
    if (refused) this.#log.write("error", line, "uplink refused: the server does not accept this agent");
    else {
      const level = shutdown || isDraining(error) ? "info" : "warn";
      this.#log.write(level, line, "uplink attempt failed", this.#onceFor(reason));
    }
  }

  suspended({ link, session }: Connection, { lossCause, ageMs, idleMs, message: reason }: CarrierLost): void {
    this.#metrics.links.suspended(lossCause);
    const times = { ageMs: Math.round(ageMs), idleMs: Math.round(idleMs) };
    const line = { link: link.id, streams: session.streamCount, cause: lossCause, reason };
    this.#log.write("warn", { ...line, ...times }, "uplink suspended");
  }

  resumed({ link: { id: link, remote }, failedTries }: Connection, resumption: ResumeReport): void {
    const { suspendedMs, replayedBytes } = resumption;
    this.#metrics.links.resumed(resumption);
    this.#successes++;
    const line = { link, remote, suspendedMs: Math.round(suspendedMs), replayedBytes, ...failedTries };
    this.#log.write("info", line, suspendedMs === 0 ? "uplink moved to a new connection" : "uplink resumed");
  }

  resumeFailed({ link }: Connection, error: unknown, { label, fault, reason }: Retry): void {
    this.#metrics.links.resumeFailed(label, link.lost?.lossCause ?? PLANNED);
    const line = { link: link.id, reason, ...(fault && { fault }) };
    this.#log.write(isDraining(error) ? "info" : "warn", line, "uplink not resumed", this.#onceFor(reason));
  }

  learned({ lesson, ms, sentence: reason }: Lesson): void {
    this.#metrics.pathLearned(lesson);
    this.#log.write("warn", { lesson, ms: Math.round(ms), reason }, "path learned");
  }

  drained({ link, session }: Connection, waitMs: number): void {
    const line = { link: link.id, streams: session.streamCount, waitMs };
    this.#log.write("info", line, "server asked the agent to reconnect");
  }

  disowned({ link, session }: Connection): void {
    const line = { link: link.id, streams: session.streamCount };
    this.#log.write("info", line, "uplink begins anew: its identity has changed");
  }

  sessionEnded({ session }: Connection, reason: Error | undefined): void {
    this.#metrics.sessionEnded(session.resetForMemory);
    if (reason instanceof LinkLost) this.#metrics.links.graceOver(reason.graceMs);
  }

  closedByServer({ link }: Connection, waitMs: number): void {
    this.#log.write("info", { link: link.id, waitMs }, "uplink closed by the server");
  }

  lost({ link, failedTries }: Connection, { refused, reason }: Retry, waitMs: number): void {
    const line = { link: link.id, waitMs, reason, ...failedTries };
    this.#log.write(refused ? "error" : "warn", line, "uplink lost");
  }

  /** The last line about a drained connection: how long it stayed, and how it ended. */
  left({ link, failedTries }: Connection, leavingMs: number, reason: Error | undefined): void {
    const line = { link: link.id, leavingMs, reason: reason?.message ?? "closed cleanly" };
    this.#log.write("info", { ...line, ...failedTries }, "uplink left");
  }

  drains({ session }: Connection): void {
    this.#log.write("info", { streams: session.streamCount }, "uplink drains");
  }

  closed(reason: string): void {
    this.#log.write("info", { reason }, "uplink closed");
  }

  /** Attempts follow several times a second at first, and fail for one reason until one succeeds. */
  #onceFor(reason: string): { readonly kind: string; readonly lines: number } {
    return { kind: `${this.#successes} ${reason}`, lines: 1 };
  }
}
