import type { Socket } from "node:net";
import { Crowd } from "../queue.ts";
import { Arrival, type ArrivalEvents } from "./arrival.ts";
import { HandshakeQueue } from "./handshake-queue.ts";

/** A handshake that came to nothing, or never began. */
export interface FailedHandshake {
  /**
   * `silent`: ended without a byte, as a probe of the port does; `dropped`: the oldest of too many in progress;
   * `crowded`: one of too many that wait; `late`: its turn did not come in time; `untrusted`: its address may not come
   * here at all; `failed`: the rest.
   */
  readonly how: "silent" | "dropped" | "crowded" | "late" | "untrusted" | "failed";
  readonly error: Error;
  readonly remote: string;
}

export interface WaitingRoomOptions {
  /** What connections wait for, for sentences: their `TLS handshake`. */
  readonly awaited: string;
  /** Connections that wait for their turn; those behind them are dropped. */
  readonly maxWaiting: number;
  /** How long a connection may wait, silent or for its turn: no client waits for ever. */
  readonly deadlineMs: number;
  /** Handshakes in progress at once, at most; and so many connections that have said nothing. One more drops the oldest. */
  readonly maxBegun: number;
  /** Let a few of those in whose turn would come too late, to be told when to come back. */
  readonly turnsAway: boolean;
  /** `backInMs`: there are too many; tell it to come back after so long. */
  begin(arrival: Arrival, backInMs: number | undefined): void;
  onFailed(failed: FailedHandshake): void;
}

/** So many may wait to be told when to come back; the others wait like all, or are dropped. */
const MAX_SURPLUS = 64;
/** The pace may get better meanwhile: nobody is sent away for longer than from so long to twice as long. */
const MAX_BACK_IN_MS = 10_000;
/** Telling costs a handshake as well: one in so many. */
const TELL_ONE_IN = 8;

/**
 * Where connections wait for their TLS handshake (docs/decisions/0008). Waiting costs a socket and a ClientHello, a
 * tenth of what a handshake in progress holds.
 *
 * ```
 *  add ─▶ silent ── speaks ──▶ in the queue ── its turn ───────────▶ begin
 *                       └────▶ surplus ── to be told: goes first ──▶ begin(backInMs)
 * ```
 */
export class WaitingRoom implements ArrivalEvents {
  readonly #options: WaitingRoomOptions;
  readonly #queue: HandshakeQueue<Arrival>;
  /** Have said nothing; in the order of arrival. */
  readonly #silent = new Crowd<Arrival>();
  /** Their turn would come too late; in the order of arrival. */
  readonly #surplus = new Crowd<Arrival>();
  /** Of those, the ones in the queue. */
  readonly #toBeTold = new Crowd<Arrival>();
  #begun = 0;

  constructor(options: WaitingRoomOptions) {
    this.#options = options;
    this.#queue = new HandshakeQueue({ most: options.maxBegun, begin: (arrival) => this.#begin(arrival) });
  }

  /** Connections whose handshake has not begun. */
  get size(): number {
    return this.#silent.size + this.#queue.waiting + this.#surplus.size;
  }

  /** A connection that was accepted; it has an error listener. */
  add(raw: Socket, remote: string): void {
    const { maxBegun, deadlineMs } = this.#options;
    if (this.#silent.size >= maxBegun) this.#dropSilent();
    this.#silent.add(new Arrival(raw, remote, deadlineMs, this));
  }

  /** The handshake of this one is over. */
  done(arrival: Arrival): void {
    this.#queue.leave(arrival);
  }

  /** Ends all that wait, and reports none. */
  clear(): void {
    for (const arrival of [...this.#silent, ...this.#surplus, ...this.#queue.clear()]) arrival.destroy();
    this.#silent.clear();
    this.#surplus.clear();
    this.#toBeTold.clear();
  }

  onSpoken(arrival: Arrival): void {
    const { maxWaiting, deadlineMs, turnsAway } = this.#options;
    this.#silent.delete(arrival);
    const full = this.#queue.waiting >= maxWaiting;
    const hopeless = full || this.#queue.drainMs > deadlineMs;
    if (hopeless && turnsAway && this.#surplus.size < MAX_SURPLUS) {
      this.#surplus.add(arrival);
    } else if (full) {
      arrival.destroy();
      this.#failed(arrival, "crowded", `too many connections wait for their ${this.#options.awaited}`);
    } else {
      this.#queue.enter(arrival);
    }
  }

  onGone(arrival: Arrival): void {
    this.#forget(arrival);
    const when = arrival.spoken ? `while it waited for its ${this.#options.awaited}` : "without a word";
    this.#failed(arrival, arrival.spoken ? "failed" : "silent", `the connection ended ${when}`);
  }

  onLate(arrival: Arrival): void {
    this.#forget(arrival);
    arrival.destroy();
    const what = arrival.spoken ? "its turn did not come" : "nothing was said";
    this.#failed(arrival, arrival.spoken ? "late" : "silent", `${this.#options.awaited} timeout: ${what}`);
  }

  #forget(arrival: Arrival): void {
    this.#toBeTold.delete(arrival);
    if (!this.#silent.delete(arrival) && !this.#surplus.delete(arrival)) this.#queue.leave(arrival);
    if (this.#queue.waiting === 0) this.#tellOne();
  }

  #begin(arrival: Arrival): void {
    const told = this.#toBeTold.delete(arrival) && this.#queue.waiting > 0;
    if (arrival.raw.destroyed) {
      this.#queue.leave(arrival); // it has hung up, and will close
      return;
    }
    arrival.handOver();
    // Spread over as long again: those who are told now must not come back together.
    const backInMs = Math.min(this.#queue.drainMs, MAX_BACK_IN_MS) * (1 + Math.random());
    this.#options.begin(arrival, told ? backInMs : undefined);
    if (++this.#begun % TELL_ONE_IN === 0 || this.#queue.waiting === 0) this.#tellOne();
  }

  #tellOne(): void {
    const arrival = this.#surplus.first;
    if (arrival === undefined) return;
    this.#surplus.delete(arrival);
    this.#toBeTold.add(arrival);
    this.#queue.enterFirst(arrival);
  }

  #dropSilent(): void {
    const oldest = this.#silent.first;
    if (oldest === undefined) return;
    this.#silent.delete(oldest);
    oldest.destroy();
    this.#failed(oldest, "dropped", `too many ${this.#options.awaited}s at once: the oldest was dropped`);
  }

  #failed({ remote }: Arrival, how: FailedHandshake["how"], sentence: string): void {
    this.#options.onFailed({ how, error: new Error(sentence), remote });
  }
}
