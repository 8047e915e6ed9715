import type { Stream } from "./stream.ts";

/** What waits for more is sent as it is when nothing comes within one to two of these, ms; and timers are late. */
const PERIOD_MS = 1;

/**
 * Streams in the middle of a bulk transfer, of whose last large write a few bytes are left. More is likely to come, and
 * then they go with it; alone they would cost both ends a frame and a TLS record.
 */
export class Remnants {
  readonly #due: (stream: Stream) => void;
  #young = new Set<Stream>();
  #old = new Set<Stream>();
  #timer: NodeJS.Timeout | undefined;

  /** `due`: told of a stream that has waited long enough, whether it still has a remnant or not. */
  constructor(due: (stream: Stream) => void) {
    this.#due = due;
  }

  keep(stream: Stream): void {
    this.#old.delete(stream);
    this.#young.add(stream);
    this.#timer ??= setTimeout(this.#onPeriod, PERIOD_MS).unref();
  }

  stop(): void {
    clearTimeout(this.#timer);
    this.#old.clear();
    this.#young.clear();
  }

  readonly #onPeriod = (): void => {
    const waited = this.#old;
    this.#old = this.#young;
    this.#young = new Set();
    this.#timer = this.#old.size > 0 ? setTimeout(this.#onPeriod, PERIOD_MS).unref() : undefined;
    for (const stream of waited) this.#due(stream);
  };
}
