import type { Socket } from "node:net";
import { networkOf } from "../address/network.ts";
import { GrowingBytes } from "../basics/growing-bytes.ts";
import { HeldBytes } from "../limits/held-bytes.ts";
import type { MemoryAccount } from "../limits/hold.ts";
import { type HandshakeBudget, type QueuedHandshake, UNLIMITED } from "./handshake-queue.ts";
import type { FoundHello, Preface, PrefaceReader } from "./preface.ts";
import type { Endpoint } from "./proxy-protocol.ts";
import { formatEndpoint, sourceOf } from "./source.ts";

/** What its owner hears of a connection while it waits for its handshake. */
export interface WaitingEvents {
  /** What stands in front of the handshake has come. */
  onPreface(connection: IncomingConnection, preface: Preface): void;
  /** It has ended, or was reset. */
  onGone(connection: IncomingConnection): void;
  /** Its time is over. */
  onLate(connection: IncomingConnection): void;
  /** It has sent more than anybody has to send before a handshake. */
  onTooMuch(connection: IncomingConnection): void;
  /** What it holds is needed. */
  onMemoryNeeded(connection: IncomingConnection): void;
}

/** How long a connection may wait, and with what. */
export interface WaitingBounds {
  readonly deadlineMs: number;
  /** Bytes that it may have sent by then. */
  readonly mostBytes: number;
  /** Where they are counted. */
  readonly memory: Pick<MemoryAccount, "hold" | "enter">;
}

/** More than a ClientHello has; what a client sends behind it stays in the kernel. */
const ENOUGH_BYTES = 16_384;

/**
 * A connection from its accept to the end of its handshake.
 *
 * ```
 *  reading ── its PROXY header and ClientHello have come ──▶ queued ── its turn ──▶ handshake ──▶ over
 * ```
 *
 * Bytes are read while it waits and given back at its turn: only a reader notices that a client has hung up, and a
 * client that says nothing must not stand in the way of others.
 */
export class IncomingConnection implements QueuedHandshake {
  readonly raw: Socket;
  /** Its peer as the kernel names it: a socket that was cut no longer knows. */
  readonly peer: Endpoint;
  state: "reading" | "queued" | "handshake" | "over" = "reading";
  /** The client behind the balancer, if a PROXY header names one. */
  client: Endpoint | undefined;
  hello: FoundHello | undefined;
  budget: HandshakeBudget = UNLIMITED;
  /** Tell the client to come back after so many milliseconds, in place of serving it. */
  backInMs: number | undefined;
  /** Its handshake began before a byte of it was read. */
  isUnread = true;
  readonly #read = new GrowingBytes();
  #consumed = 0;
  #reader: PrefaceReader | undefined;
  #timer: NodeJS.Timeout | undefined;
  #events: WaitingEvents | undefined;
  #held: HeldBytes | undefined;
  #mostBytes = Number.POSITIVE_INFINITY;

  constructor(raw: Socket) {
    this.raw = raw;
    this.peer = sourceOf(raw);
  }

  /** The client, or the balancer in front of it that does not name it. */
  get source(): Endpoint {
    return this.client ?? this.peer;
  }

  /** The same for logs. */
  get remote(): string {
    return formatEndpoint(this.source);
  }

  /** Connections of one network share their turns. */
  get network(): string {
    return networkOf(this.source.address);
  }

  get hasSpoken(): boolean {
    return this.#read.length > 0;
  }

  /** From now on it is read. The socket has an error listener, and closes when its peer ends. */
  wait(reader: PrefaceReader, { deadlineMs, mostBytes, memory }: WaitingBounds, events: WaitingEvents): void {
    this.isUnread = false;
    this.#mostBytes = mostBytes;
    this.#held = new HeldBytes(memory, () => events.onMemoryNeeded(this));
    this.#reader = reader;
    this.#events = events;
    this.#timer = setTimeout(() => events.onLate(this), deadlineMs);
    this.raw.on("data", this.#onData);
    this.raw.on("close", this.#onClose);
  }

  readonly #onData = (chunk: Buffer): void => {
    this.#read.append(chunk);
    this.#held?.add(chunk.length);
    if (this.#read.length >= ENOUGH_BYTES) this.raw.pause();
    const found = this.#reader?.push(chunk);
    if (found !== undefined) {
      this.#reader = undefined;
      this.#consumed = found.consumed;
      this.#events?.onPreface(this, found.found);
    }
    const isWaiting = this.state === "reading" || this.state === "queued";
    if (isWaiting && this.#read.length > this.#mostBytes) this.#events?.onTooMuch(this);
  };

  readonly #onClose = (): void => {
    clearTimeout(this.#timer);
    this.#held?.clear();
    this.#events?.onGone(this);
  };

  /** Gives the socket back, paused, as if nobody had read from it but its PROXY header. */
  handOver(): void {
    if (this.isUnread) return;
    this.#release();
    this.raw.pause();
    const rest = this.#read.bytes.subarray(this.#consumed);
    if (rest.length > 0) this.raw.unshift(rest);
  }

  /** Ends the connection without an answer. */
  destroy(): void {
    this.#release();
    this.raw.destroy();
  }

  #release(): void {
    clearTimeout(this.#timer);
    this.#held?.clear();
    this.raw.off("data", this.#onData);
    this.raw.off("close", this.#onClose);
  }
}
