import type { Logger } from "./logger.ts";

/** Lines of one kind in one window. */
const LINES = 10;
const WINDOW_MS = 60_000;

type Level = "info" | "warn" | "error";

/**
 * The log of what strangers do, and of what servers and paths do to an agent. They come, or cut, as often as they like, so
 * only the first few lines of each kind in a minute are at their own level and the rest is at debug; when the minute is over
 * one line for each kind says how many those were. Metrics count all.
 */
export class StrangerLog {
  readonly #log: Logger;
  /** How many lines of each kind there were in its minute, told or not. */
  readonly #counts = new Map<string, number>();

  constructor(log: Logger) {
    this.#log = log;
  }

  /**
   * `message` is a constant of ours: each has lines of its own, and so has each cluster or server that is configured. `kind`
   * tells apart what has one message, so that a flood of one kind does not hide another: one of a few words that we have,
   * never a stranger's own, or he would get lines, and memory, without end.
   */
  tell(level: Level, fields: Readonly<Record<string, unknown>>, message: string, kind?: string): void {
    const { cluster, server } = fields;
    const key = [cluster ?? server ?? "", message, kind ?? ""].join("\n");
    const count = (this.#counts.get(key) ?? 0) + 1;
    const whose = { cluster, server, kind };
    if (count === 1) setTimeout(() => this.#endMinute(level, whose, message, key), WINDOW_MS).unref();
    this.#counts.set(key, count);
    if (count > LINES) this.#log.debug(fields, message);
    else this.#log[level](fields, message);
  }

  #endMinute(
    level: Level,
    whose: { readonly [name in "cluster" | "server" | "kind"]: unknown },
    message: string,
    key: string,
  ): void {
    const untold = (this.#counts.get(key) ?? 0) - LINES;
    this.#counts.delete(key);
    if (untold > 0)
      this.#log[level]({ ...whose, untold }, `${message}: ${untold} more in a minute were not written at this level`);
  }
}
