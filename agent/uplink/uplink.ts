import { Backoff } from "../../shared/basics/backoff.ts";
import type { CarrierLost, ResumeReport } from "../../shared/link/link-events.ts";
import type { AgentContext } from "../context/context.ts";
import type { Connection, ConnectionOwner } from "./connection.ts";
import type { Path } from "./path.ts";
import { endsLink } from "./resumption.ts";
import { retryAfter, shutdownReason } from "./retry.ts";
import { UplinkLog } from "./uplink-log.ts";

/** The state of an uplink, with the data that exists in it only. */
export type UplinkState =
  | { readonly state: "waiting"; readonly untilMs: number; readonly timer: NodeJS.Timeout }
  | { readonly state: "connecting"; readonly abort: AbortController }
  | { readonly state: "connected"; readonly connection: Connection; readonly sinceMs: number }
  /** The carrier is lost, and the connection dials another one by itself. */
  | { readonly state: "suspended"; readonly connection: Connection; readonly sinceMs: number }
  | { readonly state: "draining"; readonly connection: Connection }
  | { readonly state: "closed" };

/** Finds servers for an uplink. */
export interface UplinkOwner {
  /** One attempt to connect. */
  attempt(owner: ConnectionOwner, signal: AbortSignal): Promise<Connection>;
  /** The state has changed, or the number of servers that the connected one announces. */
  onState(): void;
}

/** A server that drained this agent closes its port within this time after its last link has ended, ms. */
const SHUTDOWN_MS = 1_000;
/** A cut that comes later than this after a drain, ms, need not be that server's: a link may outlast it by hours. */
const DRAIN_CUT_MS = 60_000;

/**
 * The agent's lasting relation to one server.
 *
 * ```
 *             ┌───────── failed ──────────┐
 *             ▼           timer           │     welcome             carrier lost
 *          waiting ─────────────────▶ connecting ───────▶ connected ────────────▶ suspended
 *             ▲                         ▲   ▲               │ │ ▲                   │
 *             │                 start() ┘   └─ replaced ────┤ │ └───── resumed ─────┤
 *             └── lost; or replaced again and again ────────┘ │                     │
 *                                                             │ drain()             │ drain()
 *                                                             ▼                     │
 *       closed ◀── streams ended, deadline, lost ───────── draining ◀───────────────┘
 * ```
 *
 * Replaced: its server drained or closed the connection, or another connection has to be opened instead of it. Streams
 * of the old connection may continue meanwhile. A suspended connection may be replaced or lost, too; while it is
 * suspended, its link waits for another carrier (resumption.ts). `destroy()` changes every state to `closed` at once,
 * `drain()` and `close()` do so if there is no connection.
 *
 * shared/basics/backoff.ts and docs/decisions/0005 say which ends count as a failure, and how long the agent waits.
 */
export class Uplink implements ConnectionOwner {
  readonly server: string;
  readonly path: Path;
  /** Why there is no connection now: what the last attempt met, or what cut the carrier. Absent: nothing failed. */
  failure: string | undefined;
  readonly #owner: UplinkOwner;
  readonly #context: AgentContext;
  readonly #log: UplinkLog;
  #state: UplinkState = { state: "closed" };
  readonly #backoff: Backoff;
  /** Connections that still carry streams after their server drained them, and since when. */
  readonly #leaving = new Map<Connection, number>();
  /** A suspended connection that was replaced because a balancer chose another server. */
  #strayed: Connection | undefined;
  /** The connection that was drained last; `undefined`: it has closed, or a server has accepted the agent since. */
  #drainedBy: Connection | undefined;
  /** An attempt that begins before may meet the closed port of the server that drained this agent. */
  #shutdownUntilMs = 0;

  /** `server`: its URL. `path` learns from each lost carrier. */
  constructor(server: string, path: Path, owner: UplinkOwner, context: AgentContext) {
    this.server = server;
    this.path = path;
    this.#owner = owner;
    this.#context = context;
    this.#log = new UplinkLog(server, context);
    this.#backoff = new Backoff(context.retry);
    path.onLesson = (lesson) => this.#log.learned(lesson);
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

  /** Credentials have changed: every connection gets a new carrier. */
  changeCarriers(): void {
    for (const connection of this.connections()) connection.changeCarrier();
  }

  /** `askedMs`: the pause that the server that drained this agent asked for; another one may accept it at once. */
  async #connect(askedMs: number): Promise<void> {
    const connecting: UplinkState = { state: "connecting", abort: new AbortController() };
    this.#enter(connecting);
    const begunAtMs = performance.now();
    try {
      const connection = await this.#owner.attempt(this, connecting.abort.signal);
      if (this.#state !== connecting) connection.session.destroy(new Error("the uplink is closed"));
      else this.#connected(connection);
    } catch (error) {
      if (this.#state === connecting) this.#failed(error, askedMs, begunAtMs);
    }
  }

  #connected(connection: Connection): void {
    const { session } = connection;
    this.#enter({ state: "connected", connection, sinceMs: performance.now() });
    this.#accepted();
    this.#backoff.connected();
    this.#log.connected(connection);
    for (const old of this.#leaving.keys()) old.leave();
    // These events may have arrived in the same message as the welcome, before this owner listened.
    if (session.closed) this.onClosed(connection, connection.endedBy);
    else if (session.draining) this.onDrain(connection, 0);
  }

  /** A server has the agent: none that has drained it is missed. */
  #accepted(): void {
    this.failure = undefined;
    this.#drainedBy = undefined;
    this.#shutdownUntilMs = 0;
    this.#strayed = undefined;
  }

  #failed(error: unknown, askedMs: number, begunAtMs: number): void {
    // The pause that a server asked for ends when that server has closed.
    const floorMs = this.#drainedBy === undefined ? 0 : askedMs;
    const retry = retryAfter(error, this.#backoff.failures, floorMs, this.#context.retry);
    this.#backoff.attemptFailed();
    this.#wait(retry.waitMs);
    const mayBeCut = begunAtMs < this.#shutdownUntilMs;
    const shutdown = mayBeCut || this.#drainedBy !== undefined ? shutdownReason(error, mayBeCut) : undefined;
    this.failure = shutdown ?? retry.reason;
    this.#log.failed(error, retry, this.#backoff.failures, shutdown);
  }

  /** Something has changed that may help: the next attempt comes as soon as after the first failure. */
  hurry(): void {
    const { state } = this;
    this.#backoff.connected();
    if (state.state !== "waiting") return;
    this.#wait(Math.max(0, Math.min(this.#backoff.waitMs(), state.untilMs - performance.now())));
  }

  #wait(waitMs: number): number {
    const timer = setTimeout(() => void this.#connect(0), waitMs);
    this.#enter({ state: "waiting", timer, untilMs: performance.now() + waitMs });
    return waitMs;
  }

  /** The server drains: the agent opens a new link, here or elsewhere, and the old one ends with its streams. */
  onDrain(connection: Connection, retryAfterMs: number): void {
    const { state } = this;
    if (state.state !== "connected" || state.connection !== connection) return;
    this.#backoff.ended("clean", performance.now() - state.sinceMs);
    this.#log.drained(connection, this.#replace(connection, retryAfterMs));
  }

  /** A server that is preferred has accepted the agent. To be called while the uplink is connected. */
  moveTo(connection: Connection): void {
    const { state } = this;
    if (state.state === "connected") this.#leaving.set(state.connection, performance.now());
    this.#connected(connection);
  }

  /** Opens a new connection, while the old one ends with its streams. Returns the wait, ms. */
  #replace(connection: Connection, askedMs: number): number {
    this.#leaving.set(connection, performance.now());
    this.#drainedBy = connection;
    this.#shutdownUntilMs = performance.now() + DRAIN_CUT_MS;
    return this.#connectAgain(askedMs);
  }

  onServers(): void {
    this.#owner.onState();
  }

  onSuspended(connection: Connection, cause: CarrierLost): void {
    const { state } = this;
    if (state.state === "connected" && state.connection === connection) {
      this.failure = cause.message;
      this.#enter({ ...state, state: "suspended" });
    }
    this.#log.suspended(connection, cause);
  }

  onResumed(connection: Connection, resumption: ResumeReport): void {
    const { state } = this;
    const { lost } = resumption;
    // A server that was there all the time shows that the path cut the carrier; one that restarted does not.
    if (lost !== undefined && !connection.wasRefused) this.path.onLost(lost);
    if (state.state === "suspended" && state.connection === connection) {
      this.failure = undefined;
      this.#enter({ ...state, state: "connected" });
    }
    this.#log.resumed(connection, resumption);
    connection.wasRefused = false;
    if (this.#strayed === connection) this.#returnTo(connection);
  }

  /** The connection found its own server before another one accepted the agent, and is the uplink's again. */
  #returnTo(connection: Connection): void {
    const { state } = this;
    if (state.state !== "waiting" && state.state !== "connecting") return;
    const sinceMs = this.#leaving.get(connection) ?? performance.now();
    this.#leaving.delete(connection);
    this.#accepted();
    this.#enter({ state: "connected", connection, sinceMs });
    if (state.state === "connecting") state.abort.abort();
  }

  onResumeFailed(connection: Connection, error: unknown): void {
    const retry = retryAfter(error, 0, 0, this.#context.retry);
    if (retry.fault === "refused") connection.wasRefused = true;
    const { state } = this;
    if (state.state === "suspended" && state.connection === connection) this.failure = retry.reason;
    this.#log.resumeFailed(connection, error, retry);
  }

  /** The balancer chose another server, which accepts the agent; the old connection may still find its own server. */
  onElsewhere(connection: Connection): void {
    if (this.#state.state !== "suspended" || this.#state.connection !== connection) return;
    this.#strayed = connection;
    this.#replace(connection, 0);
  }

  /**
   * The server takes the agent for another one, because its identity has changed: a new link is opened, and open
   * streams finish on this one.
   */
  onDisowned(connection: Connection): void {
    if (this.#state.state !== "connected" || this.#state.connection !== connection) return;
    this.#log.disowned(connection);
    this.#replace(connection, 0);
    // After `#replace`, because a session without streams closes at once.
    void connection.session.close(this.#context.options.drainTimeoutMs);
  }

  onClosed(connection: Connection, reason: Error | undefined): void {
    const { state } = this;
    this.#log.sessionEnded(connection, reason);
    if (this.#leaving.has(connection)) {
      this.#left(connection, reason);
    } else if (state.state === "draining" && state.connection === connection) {
      this.#closed(reason === undefined ? "drained" : reason.message);
    } else if ((state.state === "connected" || state.state === "suspended") && state.connection === connection) {
      if (reason === undefined) this.#closedCleanly(connection, state.sinceMs);
      else this.#lost(connection, reason, state.sinceMs);
    }
  }

  #closedCleanly(connection: Connection, sinceMs: number): void {
    this.#backoff.ended("clean", performance.now() - sinceMs);
    this.#serverClosed();
    this.#log.closedByServer(connection, this.#connectAgain(0));
  }

  #lost(connection: Connection, cause: Error, sinceMs: number): void {
    this.#backoff.ended("lost", performance.now() - sinceMs);
    const retry = retryAfter(cause, this.#backoff.failures - 1, 0, this.#context.retry);
    // The server that ended the link is up.
    const waitMs = endsLink(cause) ? this.#connectAgain(0) : this.#wait(retry.waitMs);
    this.failure = retry.reason;
    this.#log.lost(connection, retry, waitMs);
  }

  /** Connects at once after a clean end, but not repeatedly to a server that closes. Returns the wait, ms. */
  #connectAgain(askedMs: number): number {
    const waitMs = this.#backoff.failures <= 1 ? 0 : this.#backoff.waitMs(askedMs);
    if (waitMs > 0) return this.#wait(waitMs);
    void this.#connect(askedMs);
    return 0;
  }

  #left(connection: Connection, reason: Error | undefined): void {
    const leavingMs = Math.round(performance.now() - (this.#leaving.get(connection) ?? 0));
    this.#leaving.delete(connection);
    this.#log.left(connection, leavingMs, reason);
    if (this.#drainedBy !== connection) return;
    // The server that drained the agent has closed. Its successor asked for no pause, and is not to blame for failures.
    this.#serverClosed();
    this.hurry();
  }

  /** A server that ended a connection cleanly soon closes its port. */
  #serverClosed(): void {
    this.#drainedBy = undefined;
    this.#shutdownUntilMs = performance.now() + SHUTDOWN_MS;
  }

  /** Go-away to the server: it opens no more streams here; those that are open live on. */
  drain(): void {
    const { state } = this;
    for (const { session } of this.connections()) session.drain();
    if (state.state === "connected" || state.state === "suspended") {
      this.#enter({ state: "draining", connection: state.connection });
      this.#log.drains(state.connection);
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
    this.#enter({ state: "closed" });
    if (state.state === "connecting") state.abort.abort();
    this.#log.closed(reason);
  }

  #enter(next: UplinkState): void {
    if (this.#state.state === "waiting") clearTimeout(this.#state.timer);
    this.#state = next;
    this.#owner.onState();
  }
}
