import type { Socket } from "node:net";
import { Queue, QueueNode } from "../basics/collections.ts";
import { SharedInterval } from "../basics/timers.ts";

/**
 * A record with one byte of payload has at most so many bytes, whatever the cipher (RFC 8446 §5.2, RFC 5246 §6.2.3).
 * Anything beyond that is padding, or messages of TLS itself such as KeyUpdate.
 */
const RECORD_BYTES = 128;
/**
 * Bytes that TLS may send without payload (handshake, certificates and others), and how many are regained each second.
 */
const BURST_BYTES = 64 * 1024;
const BYTES_PER_SECOND = 16 * 1024;
const LOOK_MS = 50;
/**
 * A flood on a new connection is noticed at the next look. Of thousands of new ones, so many are checked in one look,
 * and the others in the following looks.
 */
const YOUNG_IN_A_LOOK = 256;
const YOUNG_MS = 15_000;
/** A connection that is older is checked once in so many looks: each second. */
const LOOKS_FOR_OLD = 20;

/** A connection, and the bytes that it may still waste. */
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
 * Finds TLS connections whose peers send a flood of TLS messages without payload. Each KeyUpdate (RFC 8446 §4.6.3)
 * costs a key derivation, and neither Node nor OpenSSL counts them, so bytes received are compared with the payload in
 * them.
 */
export class TlsOverhead {
  /** Both queues are in the order of the next check. */
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

/** The number of bytes of TLS that the payload in them does not explain. */
export function wastedBytes(rawBytes: number, payloadBytes: number): number {
  return Math.max(0, rawBytes - RECORD_BYTES * payloadBytes);
}
