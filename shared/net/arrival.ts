import type { Socket } from "node:net";
import { GrowingBytes } from "./growing-bytes.ts";

/** What an arrival tells of itself. */
export interface ArrivalEvents {
  /** The client has begun to speak. */
  onSpoken(arrival: Arrival): void;
  /** It has ended, or was reset. */
  onGone(arrival: Arrival): void;
  /** Its time is over. */
  onLate(arrival: Arrival): void;
}

/** More than a ClientHello has; what a client says behind it stays in the kernel. */
const ENOUGH_BYTES = 16_384;

/**
 * A connection that waits for the beginning of its handshake. Its first bytes are read, not understood: only who
 * reads notices that a client has gone, and who says nothing must not stand in the way of those who do.
 */
export class Arrival {
  readonly raw: Socket;
  /** For the log: a socket that was cut no longer knows it. */
  readonly remote: string;
  readonly #events: ArrivalEvents;
  readonly #timer: NodeJS.Timeout;
  readonly #said = new GrowingBytes();

  /** The socket has an error listener, and closes when its peer ends. */
  constructor(raw: Socket, remote: string, deadlineMs: number, events: ArrivalEvents) {
    this.raw = raw;
    this.remote = remote;
    this.#events = events;
    this.#timer = setTimeout(() => events.onLate(this), deadlineMs);
    raw.on("data", this.#onData);
    raw.on("close", this.#onClose);
  }

  get spoken(): boolean {
    return this.#said.length > 0;
  }

  readonly #onData = (chunk: Buffer): void => {
    const first = this.#said.length === 0;
    this.#said.append(chunk);
    if (this.#said.length >= ENOUGH_BYTES) this.raw.pause();
    if (first) this.#events.onSpoken(this);
  };

  readonly #onClose = (): void => {
    clearTimeout(this.#timer);
    this.#events.onGone(this);
  };

  /** Gives the socket back as if nobody had read from it. */
  handOver(): void {
    this.#release();
    this.raw.pause();
    if (this.#said.length > 0) this.raw.unshift(this.#said.bytes);
  }

  /** Ends the connection without a word. */
  destroy(): void {
    this.#release();
    this.raw.destroy();
  }

  #release(): void {
    clearTimeout(this.#timer);
    this.raw.off("data", this.#onData);
    this.raw.off("close", this.#onClose);
  }
}
