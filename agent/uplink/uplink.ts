import { backoffMs, type Ending, shortLivesAfter } from "../../shared/basics/backoff.ts";
import { RouteFault } from "../../shared/dial/fault.ts";
import type { CarrierLost } from "../../shared/link/carrier-end.ts";
import { LinkLost, type ResumeReport } from "../../shared/link/link-options.ts";
import { type LinkMetrics, PLANNED } from "../../shared/runtime/common-metrics.ts";
import type { Logger } from "../../shared/runtime/logger.ts";
import { ThrottledLog } from "../../shared/runtime/throttled-log.ts";
import type { Stream } from "../../shared/yamux/stream.ts";
import type { Connection, ConnectionOwner } from "./connection.ts";
import { FailedResumes } from "./failed-resumes.ts";
import type { LearnedPath, Lesson, Path } from "./path.ts";
import { endsLink } from "./resumption.ts";
import {
  DRAIN_CUT_MS,
  isDraining,
  type RetryOptions,
  retryAfter,
  type ServerShutdown,
  SHUTDOWN_MS,
  shutdownReason,
} from "./retry.ts";

/** Where an uplink stands; each state holds what is true in it only. */
export type UplinkState =
  | { readonly state: "waiting"; readonly untilMs: number; readonly timer: NodeJS.Timeout }
  | {
      readonly state: "connecting";
      readonly abort: AbortController;
      /** The server that sent us away asked for so long a pause; another one may take us at once. */
      readonly askedMs: number;
    }
  | { readonly state: "connected"; readonly connection: Connection; readonly sinceMs: number }
  /** The carrier is lost, and the connection looks for another one by itself. */
  | { readonly state: "suspended"; readonly connection: Connection; readonly sinceMs: number }
  | { readonly state: "draining"; readonly connection: Connection }
  | { readonly state: "closed"; readonly reason: string };

/** What an uplink counts. */
export interface UplinkMetrics {
  readonly links: Pick<LinkMetrics, "suspended" | "resumed" | "resumeFailed" | "graceOver">;
  uplinkConnected(): void;
  /** `label`: a code of our own, never a peer's text. */
  attemptFailed(label: string): void;
  /** `resetForMemory`: streams of the session that were reset because it held too much memory. */
  sessionEnded(resetForMemory: number): void;
  pathLearned(lesson: Lesson["lesson"]): void;
}

export interface UplinkDeps {
  /** Where the uplink leads, for the log. */
  readonly server: string;
  attempt(owner: ConnectionOwner, signal: AbortSignal): Promise<Connection>;
  onStream(stream: Stream): void;
  readonly retry: RetryOptions;
  /** How long the streams of a link may go on that we leave because we have become somebody else, ms. */
  readonly drainTimeoutMs: number;
  /** Learns from each cut. */
  readonly path: Path;
  readonly metrics: UplinkMetrics;
  readonly log: Logger;
}

/**
 * The agent's lasting relation to one server (design: "Lifecycle").
 *
 * ```
 *             ┌──────────── failed ────────────┐
 *             ▼            timer               │      welcome
 *  start ─▶ waiting ─────────────────────▶ connecting ─────────▶ connected ── drain() ─▶ draining
 *             ▲                                ▲                     │                       │
 *             │                                └── sent away (old ───┤                       │ streams ended,
 *             │                                    streams live on), │                       │ deadline, lost
 *             │                                    closed in order   │                       │
 *             └───── lost; or the same again and again, at once ─────┘                       ▼
 *                               drain(), close(), destroy() while not connected ─────────▶ closed
 * ```
 *
 * What counts as a failure, and how long it makes us wait: shared/basics/backoff.ts, docs/decisions/0005.
 */
export class Uplink implements ConnectionOwner {
  readonly #deps: UplinkDeps;
  readonly #log: ThrottledLog;
  #state: UplinkState = { state: "closed", reason: "not started" };
  /** Connections in a row that did not last; a welcome does not forgive them. */
  #shortLives = 0;
  /** Those, and the attempts that failed since the last of them; each makes the next wait longer. */
  #failures = 0;
  /** Connections whose server has sent us away, and which still carry streams; and since when. */
  readonly #leaving = new Map<Connection, number>();
  /** Lost its carrier, and was left because the balancer led elsewhere. */
  #strayed: Connection | undefined;
  readonly #failedResumes = new WeakMap<Connection, FailedResumes>();
  /** The last of them, as long as no other server has taken us. */
  #sentAwayFrom: Connection | undefined;
  /** When the last server that sent us away has gone. */
  #partedAt = Number.NEGATIVE_INFINITY;
  /** Connections and resumes so far: the first failure after one of them is a new one for the log. */
  #successes = 0;
  #waiters: { resolve: () => void; reject: (error: Error) => void }[] = [];

  constructor(deps: UplinkDeps) {
    this.#deps = deps;
    this.#log = new ThrottledLog(deps.log.child({ server: deps.server }));
    deps.path.onLesson = (lesson) => this.#learned(lesson);
  }

  get server(): string {
    return this.#deps.server;
  }

  get state(): UplinkState {
    return this.#state;
  }

  get path(): LearnedPath {
    return this.#deps.path;
  }

  get connected(): boolean {
    return this.#state.state === "connected";
  }

  /** Every session that is held, the ones that are being left included. */
  *connections(): Iterable<Connection> {
    const { state } = this;
    if ("connection" in state) yield state.connection;
    yield* this.#leaving.keys();
  }

  start(): void {
    if (this.#state.state === "closed") void this.#connect(0);
  }

  /** What carriers were opened with has changed. */
  changeCarriers(): void {
    for (const connection of this.connections()) connection.changeCarrier();
  }

  whenConnected(): Promise<void> {
    const { state } = this;
    if (state.state === "connected") return Promise.resolve();
    if (state.state === "closed") return Promise.reject(new Error(`the uplink is closed: ${state.reason}`));
    return new Promise((resolve, reject) => this.#waiters.push({ resolve, reject }));
  }

  // ── the story ──────────────────────────────────────────────────────────────────────────────────────────────────

  async #connect(askedMs: number): Promise<void> {
    const connecting: UplinkState = { state: "connecting", askedMs, abort: new AbortController() };
    this.#enter(connecting);
    const parting = this.#parting();
    try {
      const connection = await this.#deps.attempt(this, connecting.abort.signal);
      if (this.#state !== connecting) connection.session.destroy(new Error("the uplink is closed"));
      else this.#connected(connection);
    } catch (error) {
      if (this.#state === connecting) this.#failed(error, askedMs, parting);
    }
  }

  #connected(connection: Connection): void {
    const { link, welcome, session } = connection;
    const { metrics } = this.#deps;
    this.#enter({ state: "connected", connection, sinceMs: performance.now() });
    metrics.uplinkConnected();
    this.#sentAwayFrom = undefined;
    this.#strayed = undefined;
    this.#failures = this.#shortLives;
    this.#successes++;
    this.#log.write("info", { serverId: welcome.serverId, link: link.id, remote: link.remote }, "uplink connected");
    for (const old of this.#leaving.keys()) old.leave();
    // What came in the very message of the welcome came before we listened.
    if (session.closed) this.onClosed(connection, connection.endedBy);
    else if (session.draining) this.onDrain(connection, 0);
  }

  /** What an attempt that begins or fails now may meet of a server that leaves. */
  #parting(): ServerShutdown {
    const now = performance.now();
    const hasGone = now - this.#partedAt < SHUTDOWN_MS;
    if (this.#sentAwayFrom === undefined) return { answers: hasGone, cuts: hasGone };
    return { answers: true, cuts: hasGone || now - (this.#leaving.get(this.#sentAwayFrom) ?? 0) < DRAIN_CUT_MS };
  }

  #failed(error: unknown, askedMs: number, begun: ServerShutdown): void {
    const { metrics, retry } = this.#deps;
    // A server that has gone meanwhile asks for nothing more.
    const floorMs = this.#sentAwayFrom === undefined ? 0 : askedMs;
    const { waitMs, refused, label, reason: why } = retryAfter(error, this.#failures, floorMs, retry);
    const failed = this.#parting();
    const mayBeParting = begun.answers || failed.answers;
    const parting = mayBeParting ? shutdownReason(error, begun.cuts || failed.cuts) : undefined;
    const reason = parting ?? why;
    metrics.attemptFailed(label);
    this.#failures++;
    this.#wait(waitMs);
    const line = { attempt: this.#failures, waitMs, reason };
    const isPlanned = parting !== undefined || isDraining(error);
    if (refused) this.#log.write("error", line, "uplink refused: the server does not accept this agent");
    else this.#log.write(isPlanned ? "info" : "warn", line, "uplink attempt failed", this.#once(reason));
  }

  #wait(waitMs: number): number {
    const timer = setTimeout(() => void this.#connect(0), waitMs);
    this.#enter({ state: "waiting", timer, untilMs: performance.now() + waitMs });
    return waitMs;
  }

  onStream(stream: Stream): void {
    this.#deps.onStream(stream);
  }

  /** The server sends us away: first a new link, here or at another server; the old one ends with its streams. */
  onDrain(connection: Connection, retryAfterMs: number): void {
    const { state } = this;
    if (state.state !== "connected" || state.connection !== connection) return;
    this.#count("in order", state.sinceMs);
    const waitMs = this.#moveOn(connection, retryAfterMs);
    const { link, session } = connection;
    this.#log.write("info", { link: link.id, streams: session.streamCount, waitMs }, "uplink sent away");
  }

  /** First a new connection; the old one ends with its streams. Returns the wait, ms. */
  #moveOn(connection: Connection, askedMs: number): number {
    this.#leaving.set(connection, performance.now());
    this.#sentAwayFrom = connection;
    return this.#connectAgain(askedMs);
  }

  onSuspended(connection: Connection, cause: CarrierLost): void {
    const { metrics } = this.#deps;
    const { state } = this;
    metrics.links.suspended(cause.lossCause);
    if (state.state === "connected" && state.connection === connection) this.#enter({ ...state, state: "suspended" });
    const { lossCause, ageMs, idleMs, message: reason } = cause;
    const line = {
      link: connection.link.id,
      streams: connection.session.streamCount,
      cause: lossCause,
      reason,
    };
    this.#log.write("warn", { ...line, ageMs: Math.round(ageMs), idleMs: Math.round(idleMs) }, "uplink suspended");
  }

  onResumed(connection: Connection, resumption: ResumeReport): void {
    const { metrics } = this.#deps;
    const { state } = this;
    const { suspendedMs, replayedBytes, lost } = resumption;
    metrics.links.resumed(resumption);
    // The server was there all the time: it is the path that cut us. Whoever was restarted says nothing about the path.
    const isOfPath = this.#failedResumes.get(connection)?.metNobody !== true;
    if (lost !== undefined && isOfPath) this.#deps.path.onLost(lost);
    if (state.state === "suspended" && state.connection === connection) this.#enter({ ...state, state: "connected" });
    const { id: link, remote } = connection.link;
    const failedTries = this.#failedTries(connection);
    this.#failedResumes.delete(connection);
    this.#successes++;
    const line = { link, remote, suspendedMs: Math.round(suspendedMs), replayedBytes, ...failedTries };
    this.#log.write("info", line, suspendedMs === 0 ? "uplink moved to a new connection" : "uplink resumed");
    if (this.#strayed === connection) this.#returnTo(connection);
  }

  #learned({ lesson, ms, sentence: reason }: Lesson): void {
    const { metrics } = this.#deps;
    metrics.pathLearned(lesson);
    this.#log.write("warn", { lesson, ms: Math.round(ms), reason }, "path learned");
    // The present carrier still has the pace that was known when it was opened.
    if (lesson === "idle_limit" || lesson === "silent") this.changeCarriers();
  }

  /** It has found its own server before another one has taken us: that is where we belong. */
  #returnTo(connection: Connection): void {
    const { state } = this;
    if (state.state !== "waiting" && state.state !== "connecting") return;
    if (state.state === "waiting") clearTimeout(state.timer);
    const sinceMs = this.#leaving.get(connection) ?? performance.now();
    this.#leaving.delete(connection);
    this.#strayed = undefined;
    this.#sentAwayFrom = undefined;
    this.#enter({ state: "connected", connection, sinceMs });
    if (state.state === "connecting") state.abort.abort();
  }

  onResumeFailed(connection: Connection, error: unknown): void {
    const { metrics, retry } = this.#deps;
    const { label, reason } = retryAfter(error, 0, 0, retry);
    metrics.links.resumeFailed(label, connection.link.lost?.lossCause ?? PLANNED);
    const failed = this.#failedResumes.get(connection) ?? new FailedResumes();
    this.#failedResumes.set(connection, failed);
    if (error instanceof RouteFault && error.fault === "refused") failed.metNobody = true;
    const line = { link: connection.link.id, reason };
    failed.count++;
    this.#log.write(isDraining(error) ? "info" : "warn", line, "uplink not resumed", this.#once(reason));
  }

  /** Attempts come several times a second at first, and fail for one and the same reason until one succeeds. */
  #once(reason: string): { readonly once: string } {
    return { once: `${this.#successes} ${reason}` };
  }

  /** How often no other carrier was to be had, for the line that ends the search. */
  #failedTries(connection: Connection): { readonly failedTries?: number } {
    const failed = this.#failedResumes.get(connection);
    return failed === undefined ? {} : { failedTries: failed.count };
  }

  /** The server that the balancer leads to now takes us at once; the streams of the old one may still find theirs. */
  onElsewhere(connection: Connection): void {
    const { state } = this;
    if (state.state !== "suspended" || state.connection !== connection) return;
    this.#strayed = connection;
    this.#moveOn(connection, 0);
  }

  /**
   * We are somebody else now, and the agent's id is the old one's until its link is over: its streams get their time, and
   * whoever we are now a link of its own.
   */
  onDisowned(connection: Connection): void {
    const { state } = this;
    if (state.state !== "connected" || state.connection !== connection) return;
    const { drainTimeoutMs } = this.#deps;
    const { link, session } = connection;
    this.#log.write(
      "info",
      { link: link.id, streams: session.streamCount },
      "uplink begins anew: its identity has changed",
    );
    this.#moveOn(connection, 0);
    void session.close(drainTimeoutMs); // only now: one without streams is over at once, and is to be known as left
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
    this.#count("in order", sinceMs);
    this.#partedAt = performance.now();
    this.#log.write("info", { link: link.id, waitMs: this.#connectAgain(0) }, "uplink closed by the server");
  }

  #lost(connection: Connection, cause: Error, sinceMs: number): void {
    const { retry } = this.#deps;
    const { id: link } = connection.link;
    this.#count("lost", sinceMs);
    const { waitMs: pauseMs, refused, reason } = retryAfter(cause, this.#failures - 1, 0, retry);
    // A server that says so is up, whatever it holds against the link.
    const waitMs = endsLink(cause) ? this.#connectAgain(0) : this.#wait(pauseMs);
    const line = { link, waitMs, reason, ...this.#failedTries(connection) };
    this.#log.write(refused ? "error" : "warn", line, "uplink lost");
  }

  #count(ending: Ending, sinceMs: number): void {
    this.#shortLives = shortLivesAfter(this.#shortLives, ending, performance.now() - sinceMs);
    this.#failures = this.#shortLives;
  }

  /** After an end in order: at once, but not again and again to a server that keeps nobody. Returns the wait, ms. */
  #connectAgain(askedMs: number): number {
    const waitMs = this.#failures <= 1 ? 0 : backoffMs(this.#failures - 1, askedMs, this.#deps.retry);
    if (waitMs === 0) void this.#connect(askedMs);
    else this.#wait(waitMs);
    return waitMs;
  }

  /** What an old link says last: how long it stayed after we were sent away, and how it ended. */
  #left(connection: Connection, reason: Error | undefined): void {
    const leavingMs = Math.round(performance.now() - (this.#leaving.get(connection) ?? 0));
    this.#leaving.delete(connection);
    const line = { link: connection.link.id, leavingMs, reason: reason?.message ?? "in order" };
    this.#log.write("info", { ...line, ...this.#failedTries(connection) }, "uplink left");
    if (this.#sentAwayFrom === connection) this.#successorMayCome();
  }

  /**
   * The server that sent us away has gone, and nobody else has taken us. Whoever comes in its place did not ask for a
   * pause, and the attempts that failed meanwhile say nothing about it.
   */
  #successorMayCome(): void {
    const { state } = this;
    this.#sentAwayFrom = undefined;
    this.#partedAt = performance.now();
    this.#failures = this.#shortLives;
    if (state.state !== "waiting") return;
    clearTimeout(state.timer);
    const waitMs = backoffMs(this.#failures - 1, 0, this.#deps.retry);
    this.#wait(Math.max(0, Math.min(waitMs, state.untilMs - performance.now())));
  }

  // ── the end ────────────────────────────────────────────────────────────────────────────────────────────────────

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
    if (next.state !== "connected" && next.state !== "closed") return;
    const waiters = this.#waiters;
    this.#waiters = [];
    for (const { resolve, reject } of waiters) {
      if (next.state === "connected") resolve();
      else reject(new Error(`the uplink is closed: ${next.reason}`));
    }
  }
}
