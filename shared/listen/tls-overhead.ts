import type { Socket } from "node:net";
import { Queue, QueueNode } from "../basics/queue.ts";
import { SharedInterval } from "../basics/timers.ts";

/**
 * A record with one byte of payload has at most so many bytes, whatever the cipher (RFC 8446 §5.2, RFC 5246 §6.2.3).
 * What a peer sends beyond it is padding, or messages of TLS itself such as KeyUpdate.
 */
const RECORD_BYTES = 128;
/**
 * Handshake, certificates, and what else TLS may send without payload, bytes; the second is what comes back each
 * second.
 */
const BURST_BYTES = 64 * 1024;
const BYTES_PER_SECOND = 16 * 1024;
const LOOK_MS = 50;
/**
 * A flood on a new connection, which has proved nothing, is noticed at the next look. Where thousands come together, so
 * many are looked at in a turn of the loop, the others at the following looks.
 */
const YOUNG_IN_A_LOOK = 256;
const YOUNG_MS = 15_000;
/** A connection that has been there for longer is looked at once in so many looks: each second. */
const LOOKS_FOR_OLD = 20;

/** What a connection may still waste. */
interface WatchedConnection {
  readonly raw: Pick<Socket, "bytesRead">;
  readonly socket: Pick<Socket, "bytesRead">;
  readonly sinceMs: number;
  leftBytes: number;
  rawBytes: number;
  payloadBytes: number;
  lookedAtMs: number;
  onFlood(): void;
}

/**
 * Ends TLS connections whose peers send TLS messages without payload in a flood: each KeyUpdate (RFC 8446 §4.6.3) costs
 * a key derivation, Node tells nobody of them, and OpenSSL counts none. So bytes that came are compared with payload
 * that came of them.
 */
export class TlsOverhead {
  /** Both in the order in which they are looked at next. */
  readonly #young = new Queue<WatchedConnection>();
  readonly #old = new Queue<WatchedConnection>();
  readonly #place = SharedInterval.every(LOOK_MS).add(() => this.#look());

  /** Watches a connection whose handshake is done, until it closes. `onFlood` is called at most once. */
  watch(raw: Socket, socket: Socket, onFlood: () => void): void {
    const now = performance.now();
    const budget = { leftBytes: BURST_BYTES, rawBytes: 0, payloadBytes: 0 };
    const place: QueueNode<WatchedConnection> = new QueueNode({
      raw,
      socket,
      sinceMs: now,
      lookedAtMs: now,
      ...budget,
      onFlood,
    });
    this.#young.join(place);
    raw.once("close", () => place.leave());
  }

  stop(): void {
    this.#place.leave();
    this.#young.clear();
    this.#old.clear();
  }

  #look(): void {
    const now = performance.now();
    this.#lookAt(this.#young, YOUNG_IN_A_LOOK, now);
    this.#lookAt(this.#old, Math.ceil(this.#old.size / LOOKS_FOR_OLD), now);
  }

  #lookAt(watched: Queue<WatchedConnection>, most: number, now: number): void {
    for (let left = Math.min(most, watched.size); left > 0; left--) {
      const place = watched.first;
      if (place === undefined) return;
      place.leave();
      const { member } = place;
      if (!this.#isWithin(member, now)) member.onFlood();
      else if (now - member.sinceMs > YOUNG_MS) this.#old.join(place);
      else this.#young.join(place);
    }
  }

  #isWithin(watched: WatchedConnection, now: number): boolean {
    const { raw, socket, leftBytes, rawBytes, payloadBytes, lookedAtMs } = watched;
    const wasted = wastedBytes(raw.bytesRead - rawBytes, socket.bytesRead - payloadBytes);
    const regained = ((now - lookedAtMs) / 1_000) * BYTES_PER_SECOND;
    watched.leftBytes = Math.min(BURST_BYTES, leftBytes + regained) - wasted;
    watched.rawBytes = raw.bytesRead;
    watched.payloadBytes = socket.bytesRead;
    watched.lookedAtMs = now;
    return watched.leftBytes >= 0;
  }
}

/** How many of so many bytes of TLS the payload in them does not explain. Pure. */
export function wastedBytes(rawBytes: number, payloadBytes: number): number {
  return Math.max(0, rawBytes - RECORD_BYTES * payloadBytes);
}
