import { Queue, QueueNode } from "../basics/collections.ts";
import { SharedInterval } from "../basics/timers.ts";

/** Why a connection is ended that wastes too many bytes. */
export const TLS_FLOOD = "it sent a flood of TLS messages without payload (KeyUpdate, padding)";

/**
 * A record with one byte of payload has at most so many bytes, whatever the cipher (RFC 8446 §5.2, RFC 5246 §6.2.3).
 * Anything beyond that is padding, or messages of TLS itself such as KeyUpdate.
 */
const RECORD_BYTES = 128;
/** Bytes that TLS may send without payload (handshake, certificates, …), and how many are regained each second. */
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

/** A stream that counts what it has received. */
interface ByteCounter {
  readonly bytesRead: number;
}

/** A connection, and the bytes that it may still waste. */
interface WatchedConnection {
  readonly raw: ByteCounter;
  readonly socket: ByteCounter;
  readonly sinceMs: number;
  leftBytes: number;
  rawBytes: number;
  payloadBytes: number;
  lookedAtMs: number;
  onFlood(): void;
}

/**
 * Finds TLS connections whose peers send a flood of TLS messages without payload. Each KeyUpdate (RFC 8446 §4.6.3)
 * costs a key derivation. Neither Node nor OpenSSL counts them, so bytes received are compared with their payload.
 */
export class TlsOverhead {
  /** Both queues are in the order of the next check. */
  readonly #young = new Queue<WatchedConnection>();
  readonly #old = new Queue<WatchedConnection>();
  /** Present while connections are watched. */
  #looks: QueueNode<() => void> | undefined;

  /**
   * Watches a connection whose handshake is done, until the returned function is called. `raw` has the bytes of TLS,
   * `socket` those of its payload. `onFlood` is called at most once.
   */
  watch(raw: ByteCounter, socket: ByteCounter, onFlood: () => void): () => void {
    const now = performance.now();
    const place: QueueNode<WatchedConnection> = new QueueNode({
      ...{ raw, socket, onFlood, sinceMs: now, lookedAtMs: now },
      ...{ leftBytes: BURST_BYTES, rawBytes: 0, payloadBytes: 0 },
    });
    this.#young.join(place);
    this.#looks ??= SharedInterval.every(LOOK_MS).add(() => this.#look());
    return () => void place.leave();
  }

  stop(): void {
    this.#young.clear();
    this.#old.clear();
  }

  #look(): void {
    const now = performance.now();
    this.#lookAt(this.#young, YOUNG_IN_A_LOOK, now);
    this.#lookAt(this.#old, Math.ceil(this.#old.size / LOOKS_FOR_OLD), now);
    if (this.#young.size + this.#old.size > 0) return;
    this.#looks?.leave();
    this.#looks = undefined;
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
