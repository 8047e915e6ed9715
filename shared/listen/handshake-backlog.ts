import { BySource } from "../basics/by-source.ts";
import { OrderedSet } from "../basics/collections.ts";
import type { MemoryAccount } from "../limits/memory-account.ts";
import { HandshakeQueue } from "./handshake-queue.ts";
import type { IncomingConnection } from "./incoming-connection.ts";
import type { Preface, PrefaceReader } from "./preface.ts";

/** A handshake that failed or never began. */
export interface FailedHandshake {
  /**
   * `silent`: it ended without a byte, as a probe of the port does. `dropped`: the oldest of too many handshakes in
   * progress or incomplete prefaces. `crowded`: the oldest of too many that wait. `late`: its turn did not come in
   * time. `untrusted`: its address may not connect. `failed`: everything else.
   */
  readonly how: "silent" | "dropped" | "crowded" | "late" | "untrusted" | "failed";
  readonly error: Error;
  readonly remote: string;
}

export interface HandshakeBacklogOptions {
  /** What connections wait for, in sentences: their `TLS handshake`. */
  readonly awaited: string;
  /** Maximum number of connections that wait for their turn. */
  readonly maxWaiting: number;
  /** Maximum time that a connection waits. */
  readonly deadlineMs: number;
  /** Maximum number of handshakes in progress, and of connections whose preface is not complete. */
  readonly maxBegun: number;
  /** Maximum number of bytes that a connection sends before its handshake begins. */
  readonly mostBytes: number;
  /** The account in which these bytes are counted. */
  readonly memory: Pick<MemoryAccount, "hold" | "enter">;
  /** Admit a few of the connections that would wait too long, and tell them when to come back. */
  readonly turnsAway: boolean;
  /** Makes the reader of a new connection's preface. */
  readerFor(connection: IncomingConnection): PrefaceReader;
  /** Finds the budget of a connection whose preface has come. False: it was refused and closed. */
  admit(connection: IncomingConnection, preface: Preface): boolean;
  /** Whether a handshake of this network may begin now, beside those in progress. */
  mayBegin(connection: IncomingConnection): boolean;
  /** Begins the handshake. If `backInMs` is set, the client is to be told to come back. */
  begin(connection: IncomingConnection): void;
  onFailed(failed: FailedHandshake): void;
}

/** Maximum number of connections that wait to be told when to come back; others wait in the queue, or are dropped. */
const MAX_SURPLUS = 64;
/** The pace may improve meanwhile: no client is told to stay away for longer than once to twice so many ms. */
const MAX_BACK_IN_MS = 10_000;
/** Telling a client costs a handshake as well: one handshake in so many is used for it. */
const ONE_SURPLUS_IN = 8;

/**
 * Connections that wait for their TLS handshake (docs/decisions/0008, 0019). Waiting costs a socket and a ClientHello,
 * a tenth of what a handshake in progress holds. One connection too many drops the oldest of the network that has most.
 *
 * ```
 *  add ─▶ reading ── preface ──▶ queue ────── its turn ──────▶ begin
 *                       └──────▶ surplus ── goes first ──────▶ begin, with backInMs
 * ```
 */
export class HandshakeBacklog {
  readonly #options: HandshakeBacklogOptions;
  readonly #queue: HandshakeQueue<IncomingConnection>;
  /** Connections whose preface is not complete. */
  readonly #reading = new BySource<IncomingConnection>();
  /** Connections that would wait too long, in the order of arrival. */
  readonly #surplus = new OrderedSet<IncomingConnection>();
  /** Connections of the surplus that stand in the queue. */
  readonly #redirected = new OrderedSet<IncomingConnection>();
  #begun = 0;

  constructor(options: HandshakeBacklogOptions) {
    this.#options = options;
    this.#queue = new HandshakeQueue({
      most: options.maxBegun,
      mayBegin: (connection) => options.mayBegin(connection),
      begin: (connection) => this.#begin(connection),
    });
  }

  /** The number of connections whose handshake has not begun. */
  get size(): number {
    return this.#reading.size + this.#queue.waiting + this.#surplus.size;
  }

  /** Adds an accepted connection, which has an error listener. */
  add(connection: IncomingConnection): void {
    this.#queue.onArrival();
    this.#reading.add(connection, connection.network);
    if (this.#reading.size > this.#options.maxBegun) this.#dropReading();
    if (!connection.raw.destroyed) connection.wait(this, this.#options);
  }

  /** The handshake of this connection is over. */
  done(connection: IncomingConnection): void {
    this.#queue.leave(connection);
  }

  /** Ends all connections that wait, without a report. */
  clear(): void {
    for (const connection of [...this.#reading, ...this.#surplus, ...this.#queue.clear()]) connection.destroy();
    for (const connection of this.#reading) this.#reading.delete(connection);
    this.#surplus.clear();
    this.#redirected.clear();
  }

  // ── events of a connection that waits ─────────────────────────────────────────────────────────────────────────────

  onPreface(connection: IncomingConnection, preface: Preface): void {
    this.#reading.delete(connection);
    if (!this.#options.admit(connection, preface)) return;
    connection.state = "queued";
    const { maxWaiting, deadlineMs, turnsAway } = this.#options;
    const hopeless = this.#queue.waiting >= maxWaiting || this.#queue.drainMs(connection) > deadlineMs;
    if (hopeless && turnsAway && this.#surplus.size < MAX_SURPLUS) {
      this.#surplus.add(connection);
      return;
    }
    this.#queue.enter(connection);
    if (this.#queue.waiting > maxWaiting) this.#dropQueued();
  }

  /** The client has ended or reset the connection. */
  onGone(connection: IncomingConnection): void {
    this.#forget(connection);
    const when = connection.hasSpoken ? `while it waited for its ${this.#options.awaited}` : "without a byte";
    this.#failed(connection, connection.hasSpoken ? "failed" : "silent", `the connection ended ${when}`);
  }

  /** The deadline has passed. */
  onLate(connection: IncomingConnection): void {
    const { state, hasSpoken, budget } = connection;
    const limit = budget.exhausted === undefined ? "" : `: ${budget.exhausted}`;
    const [how, what] = !hasSpoken
      ? (["silent", "it sent nothing"] as const)
      : state === "queued"
        ? (["late", `its turn did not come${limit}`] as const)
        : (["failed", "what it sent came to no end"] as const);
    this.#drop(connection, how, `${this.#options.awaited} timeout: ${what}`);
  }

  /** The client has sent more bytes than are needed before a handshake. */
  onTooMuch(connection: IncomingConnection): void {
    this.#drop(connection, "failed", `it sent too much before its ${this.#options.awaited} had begun`);
  }

  /** The process needs the memory that the connection holds. */
  onMemoryNeeded(connection: IncomingConnection): void {
    this.#drop(connection, "crowded", `memory is short, and it waited for its ${this.#options.awaited}`);
  }

  #drop(connection: IncomingConnection, how: FailedHandshake["how"], sentence: string): void {
    this.#forget(connection);
    connection.destroy();
    this.#failed(connection, how, sentence);
  }

  #forget(connection: IncomingConnection): void {
    this.#redirected.delete(connection);
    if (!this.#reading.delete(connection) && !this.#surplus.delete(connection)) this.#queue.leave(connection);
    if (this.#queue.waiting === 0) this.#admitSurplus();
  }

  #begin(connection: IncomingConnection): void {
    const isSurplus = this.#redirected.delete(connection) && this.#queue.waiting > 0;
    if (connection.raw.destroyed) {
      this.#queue.leave(connection); // the client has hung up, and the socket will close
      return;
    }
    // Spread over twice the time: clients that are told together must not come back together.
    if (isSurplus)
      connection.backInMs = Math.min(this.#queue.drainMs(connection), MAX_BACK_IN_MS) * (1 + Math.random());
    connection.handOver();
    this.#options.begin(connection);
    if (++this.#begun % ONE_SURPLUS_IN === 0 || this.#queue.waiting === 0) this.#admitSurplus();
  }

  #admitSurplus(): void {
    const connection = this.#surplus.first;
    if (connection === undefined) return;
    this.#surplus.delete(connection);
    this.#redirected.add(connection);
    this.#queue.enterFirst(connection);
  }

  #dropReading(): void {
    const oldest = this.#reading.oldestOfFullest;
    if (oldest === undefined) return;
    this.#reading.delete(oldest);
    oldest.destroy();
    this.#failed(oldest, "dropped", `too many ${this.#options.awaited}s at once: the oldest was dropped`);
  }

  #dropQueued(): void {
    const oldest = this.#queue.oldestOfFullest;
    if (oldest === undefined) return;
    this.#queue.leave(oldest);
    oldest.destroy();
    const sentence = `too many connections wait for their ${this.#options.awaited}: the oldest was dropped`;
    this.#failed(oldest, "crowded", sentence);
  }

  #failed({ remote }: IncomingConnection, how: FailedHandshake["how"], sentence: string): void {
    this.#options.onFailed({ how, error: new Error(sentence), remote });
  }
}
