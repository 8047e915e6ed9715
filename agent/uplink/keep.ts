import { backoffMs, DEFAULT_BACKOFF } from "../../shared/process/backoff.ts";
import type { Logger } from "../../shared/process/logger.ts";
import type { Stream } from "../../shared/yamux/stream.ts";
import type { AgentMetrics } from "../metrics.ts";
import type { Connection, ConnectionOwner } from "./attempt.ts";
import { type RetryOptions, retryAfter } from "./retry.ts";

/** Where an uplink stands; each state holds what is true in it only. `failures` counts those before. */
export type UplinkState =
  | { readonly state: "waiting"; readonly failures: number; readonly untilMs: number; readonly timer: NodeJS.Timeout }
  | {
      readonly state: "connecting";
      readonly failures: number;
      readonly abort: AbortController;
      /** The server that sent us away asked for so long a pause; another one may take us at once. */
      readonly askedMs: number;
    }
  | {
      readonly state: "connected";
      readonly failures: number;
      readonly connection: Connection;
      readonly sinceMs: number;
    }
  | { readonly state: "draining"; readonly connection: Connection }
  | { readonly state: "closed"; readonly reason: string };

export interface UplinkDeps {
  /** Where the uplink leads, for the log. */
  readonly server: string;
  attempt(owner: ConnectionOwner, signal: AbortSignal): Promise<Connection>;
  onStream(stream: Stream): void;
  readonly retry: RetryOptions;
  readonly metrics: Pick<AgentMetrics, "uplinkState" | "attemptFailed">;
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
 *             │                                    streams live on)  │                       │ deadline, lost
 *             └───────────────────────────── lost ───────────────────┘                       ▼
 *                               drain(), close(), destroy() while not connected ─────────▶ closed
 * ```
 */
export class Uplink implements ConnectionOwner {
  readonly #deps: UplinkDeps;
  #state: UplinkState = { state: "closed", reason: "not started" };
  /** Connections whose server has sent us away, and which still carry streams. */
  readonly #leaving = new Set<Connection>();
  #waiters: { resolve: () => void; reject: (error: Error) => void }[] = [];

  constructor(deps: UplinkDeps) {
    this.#deps = deps;
  }

  get server(): string {
    return this.#deps.server;
  }

  get state(): UplinkState {
    return this.#state;
  }

  get connected(): boolean {
    return this.#state.state === "connected";
  }

  /** Every session that is held, the ones that are being left included. */
  *connections(): Iterable<Connection> {
    const { state } = this;
    if (state.state === "connected" || state.state === "draining") yield state.connection;
    yield* this.#leaving;
  }

  start(): void {
    if (this.#state.state === "closed") void this.#connect(0, 0);
  }

  whenConnected(): Promise<void> {
    const { state } = this;
    if (state.state === "connected") return Promise.resolve();
    if (state.state === "closed") return Promise.reject(new Error(`the uplink is closed: ${state.reason}`));
    return new Promise((resolve, reject) => this.#waiters.push({ resolve, reject }));
  }

  // ── the story ──────────────────────────────────────────────────────────────────────────────────────────────────

  async #connect(failures: number, askedMs: number): Promise<void> {
    const connecting: UplinkState = { state: "connecting", failures, askedMs, abort: new AbortController() };
    this.#enter(connecting);
    try {
      const connection = await this.#deps.attempt(this, connecting.abort.signal);
      if (this.#state !== connecting) connection.session.destroy(new Error("the uplink is closed"));
      else this.#connected(connection, failures);
    } catch (error) {
      if (this.#state === connecting) this.#failed(error, failures, askedMs);
    }
  }

  #connected(connection: Connection, failures: number): void {
    const { link, welcome, session } = connection;
    const { log, server } = this.#deps;
    this.#enter({ state: "connected", failures, connection, sinceMs: performance.now() });
    log.info({ server, serverId: welcome.serverId, link: link.id, remote: link.remote }, "uplink connected");
    for (const old of this.#leaving) old.leave();
    // What came in the very message of the welcome came before we listened.
    if (session.closed) this.onClosed(connection, connection.endedBy);
    else if (session.draining) this.onDrain(connection, 0);
  }

  #failed(error: unknown, failures: number, askedMs: number): void {
    const { log, metrics, server, retry } = this.#deps;
    const { waitMs, refused, label, reason } = retryAfter(error, failures, askedMs, retry);
    metrics.attemptFailed(label);
    this.#wait(waitMs, failures + 1);
    const line = { server, attempt: failures + 1, waitMs, reason };
    if (refused) log.error(line, "uplink refused: the server does not accept this agent");
    else log.warn(line, "uplink attempt failed");
  }

  #wait(waitMs: number, failures: number): void {
    const timer = setTimeout(() => void this.#connect(failures, 0), waitMs);
    this.#enter({ state: "waiting", failures, timer, untilMs: performance.now() + waitMs });
  }

  onStream(stream: Stream): void {
    this.#deps.onStream(stream);
  }

  /** The server sends us away: first a new link, here or at another server; the old one ends with its streams. */
  onDrain(connection: Connection, retryAfterMs: number): void {
    const { state } = this;
    if (state.state !== "connected" || state.connection !== connection) return;
    const { log, server, retry } = this.#deps;
    const failures = failuresAfter(state);
    this.#leaving.add(connection);
    log.info({ server, link: connection.link.id, streams: connection.session.streamCount }, "uplink sent away");
    // At once, but not again and again to a server that sends everybody away.
    if (failures === 0) void this.#connect(1, retryAfterMs);
    else this.#wait(backoffMs(failures, retryAfterMs, retry), failures + 1);
  }

  onClosed(connection: Connection, reason: Error | undefined): void {
    const { log, server, retry } = this.#deps;
    const link = connection.link.id;
    if (this.#leaving.delete(connection)) {
      log.info({ server, link, reason: reason?.message }, "uplink left");
      this.#onLeft();
      return;
    }
    const { state } = this;
    if (state.state === "draining" && state.connection === connection) {
      this.#closed(reason === undefined ? "drained" : reason.message);
    } else if (state.state === "connected" && state.connection === connection) {
      const failures = failuresAfter(state);
      const cause = reason ?? new Error("the server closed the connection");
      const { waitMs, refused, reason: why } = retryAfter(cause, failures, 0, retry);
      this.#wait(waitMs, failures + 1);
      log[refused ? "error" : "warn"]({ server, link, waitMs, reason: why }, "uplink lost");
    }
  }

  /** The server that asked for a pause has gone: whoever comes after it did not ask. */
  #onLeft(): void {
    const { state } = this;
    if (state.state !== "waiting" || this.#leaving.size > 0) return;
    const waitMs = backoffMs(state.failures - 1, 0, this.#deps.retry);
    if (performance.now() + waitMs >= state.untilMs) return;
    clearTimeout(state.timer);
    this.#wait(waitMs, state.failures);
  }

  // ── the end ────────────────────────────────────────────────────────────────────────────────────────────────────

  /** Go-away to the server: it opens no more streams here; those that are open live on. */
  drain(): void {
    const { state } = this;
    for (const { session } of this.connections()) session.drain();
    if (state.state === "connected") {
      this.#enter({ state: "draining", connection: state.connection });
      this.#deps.log.info(
        { server: this.#deps.server, streams: state.connection.session.streamCount },
        "uplink drains",
      );
    } else if (state.state !== "draining") {
      this.#closed("drained");
    }
  }

  /** Drains, and waits for the streams; those that are left at the deadline are reset. */
  async close(deadlineMs: number): Promise<void> {
    this.drain();
    await Promise.all([...this.connections()].map(({ session }) => session.close(deadlineMs)));
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
    this.#deps.log.info({ server: this.#deps.server, reason }, "uplink closed");
  }

  #enter(next: UplinkState): void {
    this.#state = next;
    this.#deps.metrics.uplinkState(next.state);
    if (next.state !== "connected" && next.state !== "closed") return;
    const waiters = this.#waiters;
    this.#waiters = [];
    for (const { resolve, reject } of waiters) {
      if (next.state === "connected") resolve();
      else reject(new Error(`the uplink is closed: ${next.reason}`));
    }
  }
}

/** A connection that lived well forgives the failures before it. */
function failuresAfter(state: Extract<UplinkState, { state: "connected" }>): number {
  return performance.now() - state.sinceMs >= DEFAULT_BACKOFF.resetAfterMs ? 0 : state.failures;
}
