import type { Logger } from "../../shared/runtime/logger.ts";
import { StrangerLog } from "../../shared/runtime/stranger-log.ts";

type Line = Readonly<Record<string, unknown>>;

/** The log of one uplink, in each line of which is its server. Servers and paths can make it come and go many times a second. */
export class UplinkLog {
  readonly #server: string;
  readonly #log: Logger;
  readonly #bounded: StrangerLog;

  constructor(server: string, log: Logger) {
    this.#server = server;
    this.#log = log;
    this.#bounded = new StrangerLog(log);
  }

  tell(level: "info" | "warn" | "error", line: Line, message: string): void {
    this.#bounded.tell(level, { server: this.#server, ...line }, message);
  }

  /** What was said just now. */
  repeat(line: Line, message: string): void {
    this.#log.debug({ server: this.#server, ...line }, message);
  }
}

/** A reason that comes again so soon is none, ms. */
const SAME_AGAIN_MS = 10_000;

/** What is worth a line: attempts come several times a second at first, and fail for one and the same reason. */
export class RepeatFilter {
  #told: { readonly reason: string; readonly atMs: number } | undefined;

  isNew(reason: string): boolean {
    const atMs = performance.now();
    if (reason === this.#told?.reason && atMs - this.#told.atMs < SAME_AGAIN_MS) return false;
    this.#told = { reason, atMs };
    return true;
  }

  /** Whatever comes next is. */
  forget(): void {
    this.#told = undefined;
  }
}
