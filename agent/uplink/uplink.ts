import { Backoff } from "../../shared/basics/backoff.ts";
import { type CarrierLost, LinkLost, type ResumeReport } from "../../shared/link/link-events.ts";
import { PLANNED } from "../../shared/runtime/common-metrics.ts";
import { ThrottledLog } from "../../shared/runtime/throttled-log.ts";
import type { Stream } from "../../shared/yamux/stream.ts";
import type { Connection, ConnectionOwner } from "./connection.ts";
import type { LearnedPath, Lesson } from "./path.ts";
import { endsLink } from "./resumption.ts";
import { DrainedBy, isDraining, retryAfter, type ServerShutdown, shutdownReason } from "./retry.ts";
import type { UplinkDeps, UplinkState } from "./uplink-state.ts";

/**
 * The agent's lasting relation to one server.
 *
 * ```
 *             ┌──────────── failed ────────────┐
 *             ▼            timer               │      welcome
 *  start ─▶ waiting ─────────────────────▶ connecting ─────────▶ connected ── drain() ─▶ draining
 *             ▲                                ▲                     │                       │
 *             │                                └── drained (old ─────┤                       │ streams ended,
 *             │                                    streams live on), │                       │ deadline, lost
 *             │                                    closed in order   │                       │
 *             └───── lost; or the same again and again, at once ─────┘                       ▼
 *                               drain(), close(), destroy() while not connected ─────────▶ closed
 * ```
 *
 * `connected` is shown as `suspended` while its link waits for another carrier (resumption.ts).
 *
 * What counts as a failure, and how long it makes us wait: shared/basics/backoff.ts, docs/decisions/0005.
 */
export class Uplink implements ConnectionOwner {
  readonly server: string;
  readonly path: LearnedPath;
  readonly #deps: UplinkDeps;
  readonly #log: ThrottledLog;
  #state: UplinkState = { state: "closed", reason: "not started" };
  readonly #backoff: Backoff;
  /** Connections that still carry streams after their server drained them, and since when. */
  readonly #leaving = new Map<Connection, number>();
  /** A suspended connection that was replaced because a balancer led to another server. */
  #strayed: Connection | undefined;
  readonly #drainedBy = new DrainedBy<Connection>();
  /** Connections and resumes so far: the first failure after one of them is a new one for the log. */
  #successes = 0;

  constructor(deps: UplinkDeps) {
    this.#deps = deps;
    this.server = deps.server;
    this.path = deps.path;
    this.#log = new ThrottledLog(deps.log.child({ server: deps.server }));
    this.#backoff = new Backoff(deps.retry);
    deps.path.onLesson = (lesson) => this.#learned(lesson);
  }

  get state(): UplinkState {
    return this.#state;
  }

  get connected(): boolean {
    return this.#state.state === "connected";
  }

  /** All connections, the drained ones included. */
  *connections(): Iterable<Connection> {
    const { state } = this;
    if ("connection" in state) yield state.connection;
    yield* this.#leaving.keys();
  }

  start(): void {
    if (this.#state.state === "closed") void this.#connect(0);
  }

  /** Credentials or the path have changed: every connection gets a new carrier. */
  changeCarriers(): void {
    for (const connection of this.connections()) connection.changeCarrier();
  }

  async #connect(askedMs: number): Promise<void> {
    const connecting: UplinkState = { state: "connecting", askedMs, abort: new AbortController() };
    this.#enter(connecting);
    const shutdown = this.#drainedBy.expect();
    try {
      const connection = await this.#deps.attempt(this, connecting.abort.signal);
      if (this.#state !== connecting) connection.session.destroy(new Error("the uplink is closed"));
      else this.#connected(connection);
    } catch (error) {
      if (this.#state === connecting) this.#failed(error, askedMs, shutdown);
    }
  }

  #connected(connection: Connection): void {
    const { link, welcome, session } = connection;
    this.#enter({ state: "connected", connection, sinceMs: performance.now() });
    this.#deps.metrics.uplinkConnected();
    this.#drainedBy.accepted();
    this.#strayed = undefined;
    this.#backoff.connected();
    this.#successes++;
    this.#log.write("info", { serverId: welcome.serverId, link: link.id, remote: link.remote }, "uplink connected");
    for (const old of this.#leaving.keys()) old.leave();
    // These events may have arrived in the same message as the welcome, before this owner listened.
    if (session.closed) this.onClosed(connection, connection.endedBy);
    else if (session.draining) this.onDrain(connection, 0);
  }

  #failed(error: unknown, askedMs: number, begun: ServerShutdown): void {
    const { metrics, retry } = this.#deps;
    // The pause that a server asked for ends when that server has closed.
    const floorMs = this.#drainedBy.connection === undefined ? 0 : askedMs;
    const retried = retryAfter(error, this.#backoff.failures, floorMs, retry);
    const { waitMs, refused, label, fault } = retried;
    const failed = this.#drainedBy.expect();
    const mayShutDown = begun.answers || failed.answers;
    const shutdown = mayShutDown ? shutdownReason(error, begun.cuts || failed.cuts) : undefined;
    const reason = shutdown ?? retried.reason;
    metrics.attemptFailed(label);
    this.#backoff.attemptFailed();
    this.#wait(waitMs);
    const line = { attempt: this.#backoff.failures, waitMs, reason, ...(fault && !shutdown && { fault }) };
    const isPlanned = shutdown !== undefined || isDraining(error);
    if (refused) this.#log.write("error", line, "uplink refused: the server does not accept this agent");
    else this.#log.write(isPlanned ? "info" : "warn", line, "uplink attempt failed", this.#once(reason));
  }

  /** Something has changed that may help: the next attempt comes as soon as after the first failure. */
  hurry(): void {
    const { state } = this;
    this.#backoff.connected();
    if (state.state !== "waiting") return;
    clearTimeout(state.timer);
    this.#wait(Math.max(0, Math.min(this.#backoff.waitMs(), state.untilMs - performance.now())));
  }

  #wait(waitMs: number): number {
    const timer = setTimeout(() => void this.#connect(0), waitMs);
    this.#enter({ state: "waiting", timer, untilMs: performance.now() + waitMs });
    return waitMs;
  }

  onStream(stream: Stream): void {
    this.#deps.onStream(stream);
  }

  /**
   * The server drains: the agent opens a new link, here or at another server, and the old one ends with its streams.
   */
  onDrain(connection: Connection, retryAfterMs: number): void {
    const { state } = this;
    if (state.state !== "connected" || state.connection !== connection) return;
    this.#backoff.ended("in order", performance.now() - state.sinceMs);
    const waitMs = this.#replace(connection, retryAfterMs);
    const { link, session } = connection;
    this.#log.write(
      "info",
      { link: link.id, streams: session.streamCount, waitMs },
      "server asked the agent to reconnect",
    );
  }

  /** Opens a new connection, while the old one ends with its streams. Returns the wait, ms. */
  #replace(connection: Connection, askedMs: number): number {
    this.#leaving.set(connection, performance.now());
    this.#drainedBy.drained(connection);
    return this.#connectAgain(askedMs);
  }

  onSuspended(connection: Connection, cause: CarrierLost): void {
    const { state } = this;
    this.#deps.metrics.links.suspended(cause.lossCause);
    if (state.state === "connected" && state.connection === connection) this.#enter({ ...state, state: "suspended" });
    const { lossCause, ageMs, idleMs, message: reason } = cause;
    const times = { ageMs: Math.round(ageMs), idleMs: Math.round(idleMs) };
    const line = { link: connection.link.id, streams: connection.session.streamCount, cause: lossCause, reason };
    this.#log.write("warn", { ...line, ...times }, "uplink suspended");
  }

  onResumed(connection: Connection, resumption: ResumeReport): void {
    const { state } = this;
    const { suspendedMs, replayedBytes, lost } = resumption;
    this.#deps.metrics.links.resumed(resumption);
    // A server that was there all the time shows that the path cut the carrier; one that restarted does not.
    if (lost !== undefined && !connection.resumes.wasRefused) this.#deps.path.onLost(lost);
    if (state.state === "suspended" && state.connection === connection) this.#enter({ ...state, state: "connected" });
    const { id: link, remote } = connection.link;
    const line = { link, remote, suspendedMs: Math.round(suspendedMs), replayedBytes, ...connection.failedTries };
    connection.resumes = { failed: 0, wasRefused: false };
    this.#successes++;
    this.#log.write("info", line, suspendedMs === 0 ? "uplink moved to a new connection" : "uplink resumed");
    if (this.#strayed === connection) this.#returnTo(connection);
  }

  #learned({ lesson, ms, sentence: reason }: Lesson): void {
    this.#deps.metrics.pathLearned(lesson);
    this.#log.write("warn", { lesson, ms: Math.round(ms), reason }, "path learned");
    // The present carrier still has the keepalive that was known when it was opened.
    if (lesson === "idle_limit" || lesson === "silent") this.changeCarriers();
  }

  /** The connection found its own server before another one accepted the agent, and is the uplink's again. */
  #returnTo(connection: Connection): void {
    const { state } = this;
    if (state.state !== "waiting" && state.state !== "connecting") return;
    if (state.state === "waiting") clearTimeout(state.timer);
    const sinceMs = this.#leaving.get(connection) ?? performance.now();
    this.#leaving.delete(connection);
    this.#strayed = undefined;
    this.#drainedBy.accepted();
    this.#enter({ state: "connected", connection, sinceMs });
    if (state.state === "connecting") state.abort.abort();
  }

  onResumeFailed(connection: Connection, error: unknown): void {
    const { label, fault, reason } = retryAfter(error, 0, 0, this.#deps.retry);
    this.#deps.metrics.links.resumeFailed(label, connection.link.lost?.lossCause ?? PLANNED);
    const { failed, wasRefused } = connection.resumes;
    connection.resumes = { failed: failed + 1, wasRefused: wasRefused || fault === "refused" };
    const line = { link: connection.link.id, reason, ...(fault && { fault }) };
    this.#log.write(isDraining(error) ? "info" : "warn", line, "uplink not resumed", this.#once(reason));
  }

  /** Attempts follow several times a second at first, and fail for one reason until one succeeds. */
  #once(reason: string): { readonly once: string } {
    return { once: `${this.#successes} ${reason}` };
  }

  /** A balancer leads to another server, which accepts the agent; the old connection may still find its own server. */
  onElsewhere(connection: Connection): void {
    if (this.#state.state !== "suspended" || this.#state.connection !== connection) return;
    this.#strayed = connection;
    this.#replace(connection, 0);
  }

  /**
   * The agent's identity has changed: the new one opens a link of its own, and the old one's streams may still finish.
   */
  onDisowned(connection: Connection): void {
    if (this.#state.state !== "connected" || this.#state.connection !== connection) return;
    const { link, session } = connection;
    const line = { link: link.id, streams: session.streamCount };
    this.#log.write("info", line, "uplink begins anew: its identity has changed");
    this.#replace(connection, 0);
    void session.close(this.#deps.drainTimeoutMs); // after `#replace`, because a session without streams closes at once
  }

  onClosed(connection: Connection, reason: Error | undefined): void {
    const { state } = this;
    this.#deps.metrics.sessionEnded(connection.session.resetForMemory);
    if (reason instanceof LinkLost) this.#deps.metrics.links.graceOver(reason.graceMs);
    if (this.#leaving.has(connection)) {
      this.#left(connection, reason);
    } else if (state.state === "draining" && state.connection === connection) {
      this.#closed(reason === undefined ? "drained" : reason.message);
    } else if ((state.state === "connected" || state.state === "suspended") && state.connection === connection) {
      if (reason === undefined) this.#closedInOrder(connection, state.sinceMs);
      else this.#lost(connection, reason, state.sinceMs);
    }
  }

  #closedInOrder({ link }: Connection, sinceMs: number): void {
    this.#backoff.ended("in order", performance.now() - sinceMs);
    this.#drainedBy.closed();
    this.#log.write("info", { link: link.id, waitMs: this.#connectAgain(0) }, "uplink closed by the server");
  }

  #lost(connection: Connection, cause: Error, sinceMs: number): void {
    this.#backoff.ended("lost", performance.now() - sinceMs);
    const { waitMs: pauseMs, refused, reason } = retryAfter(cause, this.#backoff.failures - 1, 0, this.#deps.retry);
    // The server that ended the link is up.
    const waitMs = endsLink(cause) ? this.#connectAgain(0) : this.#wait(pauseMs);
    const line = { link: connection.link.id, waitMs, reason, ...connection.failedTries };
    this.#log.write(refused ? "error" : "warn", line, "uplink lost");
  }

  /**
   * Connects at once after an end in order, but not again and again to a server that closes at once. Returns the wait,
   * ms.
   */
  #connectAgain(askedMs: number): number {
    const waitMs = this.#backoff.failures <= 1 ? 0 : this.#backoff.waitMs(askedMs);
    if (waitMs > 0) return this.#wait(waitMs);
    void this.#connect(askedMs);
    return 0;
  }

  /** The last line about a drained connection: how long it stayed, and how it ended. */
  #left(connection: Connection, reason: Error | undefined): void {
    const leavingMs = Math.round(performance.now() - (this.#leaving.get(connection) ?? 0));
    this.#leaving.delete(connection);
    const line = { link: connection.link.id, leavingMs, reason: reason?.message ?? "in order" };
    this.#log.write("info", { ...line, ...connection.failedTries }, "uplink left");
    if (this.#drainedBy.connection === connection) this.#onServerClosed();
  }

  /**
   * The server that drained the agent has closed. Its successor asked for no pause, and is not to blame for failures.
   */
  #onServerClosed(): void {
    this.#drainedBy.closed();
    this.hurry();
  }

  /** Go-away to the server: it opens no more streams here; those that are open live on. */
  drain(): void {
    const { state } = this;
    for (const { session } of this.connections()) session.drain();
    if (state.state === "connected" || state.state === "suspended") {
      this.#enter({ state: "draining", connection: state.connection });
      this.#log.write("info", { streams: state.connection.session.streamCount }, "uplink drains");
    } else if (state.state !== "draining") {
      this.#closed("drained");
    }
  }

  /** Drains, and waits for the streams; those that are left at the deadline are reset. */
  async close(deadlineMs: number): Promise<void> {
    this.drain();
    const connections = [...this.connections()];
    const closing = connections.map(({ session }) => session.close(deadlineMs));
    for (const connection of connections) connection.hasten();
    await Promise.all(closing);
    this.#closed("closed");
  }

  destroy(reason: Error): void {
    const connections = [...this.connections()];
    this.#closed(reason.message);
    for (const { session } of connections) session.destroy(reason);
  }

  #closed(reason: string): void {
    const { state } = this;
    if (state.state === "closed") return;
    if (state.state === "waiting") clearTimeout(state.timer);
    this.#enter({ state: "closed", reason });
    if (state.state === "connecting") state.abort.abort();
    this.#log.write("info", { reason }, "uplink closed");
  }

  #enter(next: UplinkState): void {
    this.#state = next;
    this.#deps.onState?.();
  }
}
