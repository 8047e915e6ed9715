import type { ServerHttp2Session, ServerHttp2Stream } from "node:http2";
import type { AgentStream } from "./agent-stream.ts";

/** The least window, and the largest: the latter lets 160 MB/s through on a path of 100 ms. Bytes. */
const LEAST = 256 * 1024;
const LARGEST = 16 * 1024 * 1024;
/** The window grows when this share of it has arrived within a round trip, to the double of what has. */
const USED = 2 / 3;
/** The longest pause at a time, ms: of an agent whose callers leave as much as they may, and take 5 MiB/s. */
const LONGEST_PAUSE_MS = 50;
/** The longest while others take what comes for them, or for a caller that may have stopped: 25 MiB/s are left, ms. */
const SHORT_PAUSE_MS = 10;
/** Others do, if this share of what has come was for them. */
const OTHERS = 1 / 8;
/** A slow caller may leave this much before it slows the agent down, bytes. */
const LEFT_FREELY = 1024 * 1024;
/** A caller that pauses for less moves, ms. */
const MOVING_MS = 200;
/**
 * One that has taken nothing for this time, ms, has stopped, unless it has paused for longer before. A slow reader of
 * TCP takes nothing until a third of the kernel's buffer is free, which is 1.4 MiB.
 */
const STOPPED_MS = 2_000;

type SlowStream = Pick<AgentStream, "held" | "lastProgressAt" | "longestPauseMs">;

/**
 * How fast the gRPC stream of an agent is read. Its window is what may be on its way, and so what others wait behind.
 * It is as large as the path needs, which a ping in each round trip of a transfer measures, as grpc-go does.
 *
 * A caller that takes its bytes more slowly than the agent sends them slows all of the agent down: the window shrinks,
 * and then there are pauses, short ones for little that is left, with `LEAST` bytes between two of them. So a large
 * transfer goes on at the caller's pace, and others wait for milliseconds. For a caller that has stopped there is no
 * pause: what it leaves is held until it is too much.
 */
export class AgentWindow {
  readonly #session: ServerHttp2Session;
  readonly #stream: ServerHttp2Stream;
  #size = LEAST;
  /** Bytes that have come since the present ping was sent; `undefined`: there is none. */
  #ofRoundTrip: number | undefined;
  #fastest = 0;
  /** Bytes that have come since the last pause; below 0: as many have still to come that were sent before it shrank. */
  #sincePause = 0;
  /** The part of them that callers have taken at once. */
  #taken = 0;
  #pause: NodeJS.Timeout | undefined;

  constructor(session: ServerHttp2Session, stream: ServerHttp2Stream) {
    this.#session = session;
    this.#stream = stream;
    this.#resize(LEAST);
  }

  /** Not while the agent has not acknowledged the last size. */
  #resize(size: number): void {
    if (this.#session.destroyed || this.#session.pendingSettingsAck) return;
    this.#size = size;
    this.#session.settings({ initialWindowSize: size });
    this.#session.setLocalWindowSize(size);
  }

  /** Bytes have come. */
  onReceived(bytes: number): void {
    this.#sincePause += bytes;
    if (this.#ofRoundTrip !== undefined) this.#ofRoundTrip += bytes;
    else if (this.#size < LARGEST && !this.#session.destroyed) {
      this.#ofRoundTrip = bytes;
      this.#session.ping((error, ms) => this.#onRoundTrip(error === null ? ms : Number.POSITIVE_INFINITY));
    }
  }

  #onRoundTrip(ms: number): void {
    if (this.#ofRoundTrip === undefined) return;
    const bytes = this.#ofRoundTrip;
    this.#ofRoundTrip = undefined;
    const speed = bytes / Math.max(ms, 0.1);
    if (bytes < USED * this.#size || speed < this.#fastest) return;
    this.#fastest = speed;
    this.#resize(Math.min(LARGEST, 2 * bytes));
  }

  /** A caller has taken them at once. */
  onTaken(bytes: number): void {
    this.#taken += bytes;
  }

  /** A caller has left bytes, of `most` that may be left. */
  onLeft({ held, lastProgressAt, longestPauseMs }: SlowStream, most: number): void {
    if (held < LEFT_FREELY || this.#pause !== undefined || this.#sincePause < LEAST) return;
    const idleMs = performance.now() - lastProgressAt;
    const moves = idleMs < Math.max(MOVING_MS, 2 * Math.min(longestPauseMs, STOPPED_MS));
    if (!moves && idleMs > STOPPED_MS) return;
    const isAlone = this.#taken < OTHERS * this.#sincePause;
    this.#slowDown(Math.min(1, held / most) * LONGEST_PAUSE_MS, moves && isAlone ? LONGEST_PAUSE_MS : SHORT_PAUSE_MS);
  }

  #slowDown(wishedMs: number, mostMs: number): void {
    this.#ofRoundTrip = undefined; // the pause is none of the path's
    if (this.#size > LEAST) {
      this.#sincePause = -this.#size;
      this.#resize(Math.max(LEAST, this.#size / 2));
      return;
    }
    this.#sincePause = 0;
    this.#taken = 0;
    this.#stream.pause();
    this.#pause = setTimeout(this.#goOn, Math.min(wishedMs, mostMs));
  }

  readonly #goOn = (): void => {
    this.#pause = undefined;
    this.#stream.resume();
  };

  close(): void {
    clearTimeout(this.#pause);
    this.#stream.resume(); // or its end would not be noticed
  }
}
