import { Queue, QueueNode } from "../basics/collections.ts";
import { SharedInterval } from "../basics/timers.ts";

/** The reason for ending a connection that wastes too many bytes. */
export const TLS_FLOOD = "the peer sent a flood of TLS messages without payload (KeyUpdate, padding)";

/**
 * Maximum length of a record with one byte of payload, whatever the cipher (RFC 8446 §5.2, RFC 5246 §6.2.3). Further
 * bytes are padding, or messages of TLS itself such as KeyUpdate.
 */
const RECORD_BYTES = 128;
/**
 * Bytes without payload that TLS may send at once. A record that is still arriving has up to 18 KiB of them, for as
 * long as its line needs, and one read has 16 KiB more.
 */
const BURST_BYTES = 64 * 1024;
/** Bytes without payload that are allowed again each second. */
const BYTES_PER_SECOND = 16 * 1024;
/** Interval between two checks, ms. */
const LOOK_MS = 50;
/**
 * Maximum number of young connections in one check; if there are more, the others follow in the next checks. Up to this
 * number of young connections, a flood on one of them is found in the next check.
 */
const YOUNG_IN_A_LOOK = 256;
/** Maximum age of a young connection, ms. */
const YOUNG_MS = 15_000;
/** An older connection is part of one in this many checks: once a second. */
const LOOKS_FOR_OLD = 20;

/** A stream that counts what it has received. */
interface ByteCounter {
  readonly bytesRead: number;
}

/** A watched connection, and its bytes that no payload has explained yet. */
interface WatchedConnection {
  readonly raw: ByteCounter;
  readonly socket: ByteCounter;
  readonly sinceMs: number;
  wastedBytes: number;
  rawBytes: number;
  payloadBytes: number;
  lookedAtMs: number;
  onFlood(): void;
}

/**
 * Finds TLS connections whose peers send a flood of TLS messages without payload. Each KeyUpdate (RFC 8446 §4.6.3)
 * costs a key derivation. Neither Node nor OpenSSL counts them, so bytes received are compared with their payload. On a
 * slow line one record arrives over many checks, and is no flood (decision 0041).
 */
export class TlsOverhead {
  /** Young connections, in the order of their next check. */
  readonly #young = new Queue<WatchedConnection>();
  /** Older connections, in the order of their next check. */
  readonly #old = new Queue<WatchedConnection>();
  /** The timer of the checks; present while connections are watched. */
  #looks: QueueNode<() => void> | undefined;

  /**
   * Watches a connection whose handshake is done, until the returned function is called. `raw` counts the bytes of TLS,
   * `socket` those of the payload. `onFlood` is called at most once.
   */
  watch(raw: ByteCounter, socket: ByteCounter, onFlood: () => void): () => void {
    const now = performance.now();
    const place: QueueNode<WatchedConnection> = new QueueNode({
      raw,
      socket,
      onFlood,
      sinceMs: now,
      lookedAtMs: now,
      wastedBytes: 0,
      rawBytes: raw.bytesRead,
      payloadBytes: socket.bytesRead,
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
    const { raw, socket, rawBytes, payloadBytes, lookedAtMs } = watched;
    const regained = ((now - lookedAtMs) / 1_000) * BYTES_PER_SECOND;
    const before = Math.max(0, watched.wastedBytes - regained);
    watched.wastedBytes = wastedBytes(before + raw.bytesRead - rawBytes, socket.bytesRead - payloadBytes);
    watched.rawBytes = raw.bytesRead;
    watched.payloadBytes = socket.bytesRead;
    watched.lookedAtMs = now;
    return watched.wastedBytes <= BURST_BYTES;
  }
}

/**
 * Returns how many of the bytes of TLS are more than their payload needs. The payload of a record comes when all of the
 * record has come, and explains the bytes that were counted before.
 */
export function wastedBytes(rawBytes: number, payloadBytes: number): number {
  return Math.max(0, rawBytes - RECORD_BYTES * payloadBytes);
}
