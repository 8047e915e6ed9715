import type { Logger } from "./logger.ts";

/** Lines of one message in one window. */
const LINES = 10;
const WINDOW_MS = 60_000;

interface Window {
  readonly since: number;
  /** Events in it, told or not. */
  count: number;
}

/**
 * The log of what strangers do. They come as often as they like, so only the first few lines of each message in a minute
 * are at their own level and the rest is at debug; the first line of a later minute says how many that were. Metrics
 * count all.
 */
export class StrangerLog {
  readonly #log: Logger;
  readonly #now: () => number;
  readonly #windows = new Map<string, Window>();

  constructor(log: Logger, now: () => number = () => performance.now()) {
    this.#log = log;
    this.#now = now;
  }

  /** `message` is a constant of ours: each has lines of its own, and so has each cluster that is configured. */
  tell(level: "info" | "warn" | "error", fields: Readonly<Record<string, unknown>>, message: string): void {
    const now = this.#now();
    const key = `${fields["cluster"] ?? ""} ${message}`;
    let window = this.#windows.get(key);
    let untold = 0;
    if (window === undefined || now - window.since >= WINDOW_MS) {
      untold = Math.max(0, (window?.count ?? 0) - LINES);
      window = { since: now, count: 0 };
      this.#windows.set(key, window);
    }
    window.count++;
    if (window.count > LINES) this.#log.debug(fields, message);
    else this.#log[level]({ ...fields, ...(untold > 0 && { untold }) }, message);
  }
}
