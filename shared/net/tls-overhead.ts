import type { Socket } from "node:net";
import { Crowd } from "../queue.ts";
import { LookTimer } from "./look-timer.ts";

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
/**
 * A flood is noticed this soon, ms: on a new connection, before it has proved anything, and on one that has been there
 * for longer.
 */
const LOOK_MS = { young: 50, old: 1_000 } as const;
const YOUNG_MS = 15_000;

/** What a connection may still waste. */
interface Watched {
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
  readonly #young = new Crowd<Watched>();
  readonly #old = new Crowd<Watched>();
  readonly #places = [
    LookTimer.every(LOOK_MS.young).add(() => this.#look(this.#young)),
    LookTimer.every(LOOK_MS.old).add(() => this.#look(this.#old)),
  ];

  /** Watches a connection whose handshake is done, until it closes. `onFlood` is called at most once. */
  watch(raw: Socket, socket: Socket, onFlood: () => void): void {
    const now = performance.now();
    const budget = { leftBytes: BURST_BYTES, rawBytes: 0, payloadBytes: 0 };
    const watched: Watched = { raw, socket, sinceMs: now, lookedAtMs: now, ...budget, onFlood };
    this.#young.add(watched);
    raw.once("close", () => this.#forget(watched));
  }

  stop(): void {
    for (const place of this.#places) place.leave();
    this.#young.clear();
    this.#old.clear();
  }

  #forget(watched: Watched): void {
    if (!this.#young.delete(watched)) this.#old.delete(watched);
  }

  #look(all: Crowd<Watched>): void {
    const now = performance.now();
    for (const watched of all) {
      if (!this.#isWithin(watched, now)) {
        this.#forget(watched);
        watched.onFlood();
      } else if (all === this.#young && now - watched.sinceMs > YOUNG_MS) {
        this.#young.delete(watched);
        this.#old.add(watched);
      }
    }
  }

  #isWithin(watched: Watched, now: number): boolean {
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
