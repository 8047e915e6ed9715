import { BySource } from "../basics/by-source.ts";
import { OrderedSet } from "../basics/queue.ts";
import type { MemoryAccount } from "../limits/memory-account.ts";
import { HandshakeQueue } from "./handshake-queue.ts";
import type { IncomingConnection, WaitingEvents } from "./incoming-connection.ts";
import type { Preface, PrefaceReader } from "./preface.ts";

/** A handshake that came to nothing, or never began. */
export interface FailedHandshake {
  /**
   * `silent`: ended without a byte, as a probe of the port does; `dropped`: the oldest of too many in progress, or that
   * have not sent what stands in front of their handshake; `crowded`: the oldest of too many that wait; `late`: its
   * turn did not come in time; `untrusted`: its address may not come here at all; `failed`: the rest.
   */
  readonly how: "silent" | "dropped" | "crowded" | "late" | "untrusted" | "failed";
  readonly error: Error;
  readonly remote: string;
}

export interface HandshakeBacklogOptions {
  /** What connections wait for, for sentences: their `TLS handshake`. */
  readonly awaited: string;
  /** Most connections that may wait for their turn. */
  readonly maxWaiting: number;
  /** How long a connection may wait, ms. */
  readonly deadlineMs: number;
  /** Most handshakes in progress at once; and most connections that have not sent what stands in front of theirs. */
  readonly maxBegun: number;
  /** Bytes that a connection may have sent before its handshake begins. */
  readonly mostBytes: number;
  /** Where they are counted until then. */
  readonly memory: Pick<MemoryAccount, "hold" | "enter">;
  /** Let a few of those in whose turn would come too late, and tell them when to come back. */
  readonly turnsAway: boolean;
  /** Reads what stands in front of the handshake of a new connection. */
  readerFor(connection: IncomingConnection): PrefaceReader;
  /** Finds the budget of a connection whose preface has come. False: it was refused, and has been ended. */
  admit(connection: IncomingConnection, preface: Preface): boolean;
  /** May one of this network begin now, beside those that are in progress? */
  mayBegin(connection: IncomingConnection): boolean;
  /** `backInMs` of the connection is set: there are too many; tell it to come back. */
  begin(connection: IncomingConnection): void;
  onFailed(failed: FailedHandshake): void;
}

/** So many may wait to be told when to come back; the others wait like all, or are dropped. */
const MAX_SURPLUS = 64;
/** The pace may get better meanwhile: nobody is sent away for longer than from so long to twice as long. */
const MAX_BACK_IN_MS = 10_000;
/** To tell one costs a handshake as well: one in so many. */
const TELL_ONE_IN = 8;

/**
 * Where connections wait for their TLS handshake (docs/decisions/0008, 0019). Waiting costs a socket and a ClientHello,
 * a tenth of what a handshake in progress holds. What is too much is dropped where it came from: the oldest of the
 * network that holds most.
 *
 * ```
 *  add ─▶ reading ── preface ──▶ in the queue ── its turn ─────────────▶ begin
 *                       └──────▶ surplus ── to be told: goes first ──▶ begin, with backInMs
 * ```
 */
export class HandshakeBacklog implements WaitingEvents {
  readonly #options: HandshakeBacklogOptions;
  readonly #queue: HandshakeQueue<IncomingConnection>;
  /** Have not sent what stands in front of their handshake. */
  readonly #reading = new BySource<IncomingConnection>();
  /** Their turn would come too late; in the order of arrival. */
  readonly #surplus = new OrderedSet<IncomingConnection>();
  /** Of those, the ones in the queue. */
  readonly #toBeTold = new OrderedSet<IncomingConnection>();
  #begun = 0;

  constructor(options: HandshakeBacklogOptions) {
    this.#options = options;
    this.#queue = new HandshakeQueue({
      most: options.maxBegun,
      mayBegin: (connection) => options.mayBegin(connection),
      begin: (connection) => this.#begin(connection),
    });
  }

  /** Connections whose handshake has not begun. */
  get size(): number {
    return this.#reading.size + this.#queue.waiting + this.#surplus.size;
  }

  /** A connection that was accepted; it has an error listener. */
  add(connection: IncomingConnection): void {
    const { maxBegun, readerFor } = this.#options;
    this.#queue.onArrival();
    this.#reading.add(connection, connection.network);
    if (this.#reading.size > maxBegun) this.#dropReading();
    if (!connection.raw.destroyed) connection.wait(readerFor(connection), this.#options, this);
  }

  /** The handshake of this one is over, or it was refused before. */
  done(connection: IncomingConnection): void {
    this.#queue.leave(connection);
  }

  /** Ends all that wait, and reports none. */
  clear(): void {
    for (const connection of [...this.#reading, ...this.#surplus, ...this.#queue.clear()]) connection.destroy();
    for (const connection of this.#reading) this.#reading.delete(connection);
    this.#surplus.clear();
    this.#toBeTold.clear();
  }

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

  onGone(connection: IncomingConnection): void {
    this.#forget(connection);
    const when = connection.hasSpoken ? `while it waited for its ${this.#options.awaited}` : "without a byte";
    this.#failed(connection, connection.hasSpoken ? "failed" : "silent", `the connection ended ${when}`);
  }

  onLate(connection: IncomingConnection): void {
    const { state, hasSpoken, budget } = connection;
    this.#forget(connection);
    connection.destroy();
    const limit = budget.exhausted === undefined ? "" : `: ${budget.exhausted}`;
    const [how, what] = !hasSpoken
      ? (["silent", "it sent nothing"] as const)
      : state === "queued"
        ? (["late", `its turn did not come${limit}`] as const)
        : (["failed", "what it sent came to no end"] as const);
    this.#failed(connection, how, `${this.#options.awaited} timeout: ${what}`);
  }

  onTooMuch(connection: IncomingConnection): void {
    this.#forget(connection);
    connection.destroy();
    this.#failed(connection, "failed", `it sent too much before its ${this.#options.awaited} had begun`);
  }

  onMemoryNeeded(connection: IncomingConnection): void {
    this.#forget(connection);
    connection.destroy();
    this.#failed(connection, "crowded", `memory is short, and it waited for its ${this.#options.awaited}`);
  }

  #forget(connection: IncomingConnection): void {
    this.#toBeTold.delete(connection);
    if (!this.#reading.delete(connection) && !this.#surplus.delete(connection)) this.#queue.leave(connection);
    if (this.#queue.waiting === 0) this.#tellOne();
  }

  #begin(connection: IncomingConnection): void {
    const told = this.#toBeTold.delete(connection) && this.#queue.waiting > 0;
    if (connection.raw.destroyed) {
      this.#queue.leave(connection); // it has hung up, and will close
      return;
    }
    // Spread over as long again: those who are told now must not come back together.
    if (told) connection.backInMs = Math.min(this.#queue.drainMs(connection), MAX_BACK_IN_MS) * (1 + Math.random());
    connection.handOver();
    this.#options.begin(connection);
    if (++this.#begun % TELL_ONE_IN === 0 || this.#queue.waiting === 0) this.#tellOne();
  }

  #tellOne(): void {
    const connection = this.#surplus.first;
    if (connection === undefined) return;
    this.#surplus.delete(connection);
    this.#toBeTold.add(connection);
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
