import type { ServerHttp2Session, ServerHttp2Stream } from "node:http2";
import type { AgentStream } from "./agent-stream.ts";

/**
 * The least window, bytes, and how much comes between two pauses: so 5 MiB/s are left of an agent that is slowed down,
 * and on a line of 1 Mbit/s nobody waits behind more than 2 s of a download.
 */
const LEAST = 256 * 1024;
/** It lets 160 MB/s through on a path of 100 ms, bytes. */
const LARGEST = 16 * 1024 * 1024;
/** The longest pause at a time, of an agent whose callers leave as much as they may: others notice no more, ms. */
const LONGEST_PAUSE_MS = 50;
/**
 * A caller that has taken nothing for this time has stopped, ms. A slow reader of TCP takes nothing until a third of
 * the kernel's buffer is free, which is 1.4 MiB.
 */
const STOPPED_MS = 2_000;

type SlowStream = Pick<AgentStream, "held" | "lastProgressAt">;

/**
 * Paces the reading of an agent's gRPC stream. Its window is the number of bytes that may be under way, and that others
 * wait behind. It is twice the capacity of the path: the speed of the last round trip, which a ping measures, times the
 * least round trip. With the last round trip instead of the least, the window would grow with the queue that it makes
 * in front of a slow line.
 *
 * A caller that takes its bytes more slowly than the agent sends them slows all of the agent down: the window shrinks,
 * and then there are pauses, the longer the more is left. So a large transfer continues at the caller's pace, and
 * others wait for milliseconds. For a caller that has stopped there is no pause: its bytes are held until they are too
 * many.
 */
export class AgentWindow {
  readonly #session: ServerHttp2Session;
  readonly #stream: ServerHttp2Stream;
  #size = LEAST;
  /** Bytes that have come since the present ping was sent; `undefined`: there is none. */
  #ofRoundTrip: number | undefined;
  #leastMs = Number.POSITIVE_INFINITY;
  /** Bytes that have come since the last pause; below 0: as many have still to come that were sent before it shrank. */
  #sincePause = 0;
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
      this.#session.ping((error, ms) =>
        this.#onRoundTrip(error === null ? Math.max(ms, 0.1) : Number.POSITIVE_INFINITY),
      );
    }
  }

  #onRoundTrip(ms: number): void {
    if (this.#ofRoundTrip === undefined) return;
    const bytes = this.#ofRoundTrip;
    this.#ofRoundTrip = undefined;
    this.#leastMs = Math.min(this.#leastMs, ms);
    const wanted = Math.min(LARGEST, Math.floor((2 * bytes * this.#leastMs) / ms));
    if (wanted > this.#size) this.#resize(wanted);
  }

  /** A caller has left bytes, of `most` that may be left. */
  onLeft({ held, lastProgressAt }: SlowStream, most: number): void {
    const pauseMs = Math.floor(Math.min(1, held / most) * LONGEST_PAUSE_MS);
    if (pauseMs === 0 || this.#pause !== undefined || this.#sincePause < LEAST) return;
    if (performance.now() - lastProgressAt > STOPPED_MS) return;
    this.#ofRoundTrip = undefined; // the pause is none of the path's
    if (this.#size > LEAST) {
      this.#sincePause = -this.#size;
      this.#resize(Math.max(LEAST, Math.floor(this.#size / 2)));
      return;
    }
    this.#sincePause = 0;
    this.#stream.pause();
    this.#pause = setTimeout(this.#goOn, pauseMs);
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
