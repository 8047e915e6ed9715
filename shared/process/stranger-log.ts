import type { Logger } from "./logger.ts";

/** Lines of one message in one window. */
const LINES = 10;
const WINDOW_MS = 60_000;

type Level = "info" | "warn" | "error";

/**
 * The log of what strangers do, and of what servers and paths do to an agent. They come, or cut, as often as they like, so
 * only the first few lines of each message in a minute are at their own level and the rest is at debug; when the minute is
 * over one line says how many those were. Metrics count all.
 */
export class StrangerLog {
  readonly #log: Logger;
  /** How many lines of each message there were in its minute, told or not. */
  readonly #counts = new Map<string, number>();

  constructor(log: Logger) {
    this.#log = log;
  }

  /** `message` is a constant of ours: each has lines of its own, and so has each cluster or server that is configured. */
  tell(level: Level, fields: Readonly<Record<string, unknown>>, message: string): void {
    const { cluster, server } = fields;
    const key = `${cluster ?? server ?? ""} ${message}`;
    const count = (this.#counts.get(key) ?? 0) + 1;
    if (count === 1) setTimeout(() => this.#endMinute(level, { cluster, server }, message, key), WINDOW_MS).unref();
    this.#counts.set(key, count);
    if (count > LINES) this.#log.debug(fields, message);
    else this.#log[level](fields, message);
  }

  #endMinute(
    level: Level,
    whose: { readonly [name in "cluster" | "server"]: unknown },
    message: string,
    key: string,
  ): void {
    const untold = (this.#counts.get(key) ?? 0) - LINES;
    this.#counts.delete(key);
    if (untold > 0)
      this.#log[level]({ ...whose, untold }, `${message}: ${untold} more in a minute were not written at this level`);
  }
}
