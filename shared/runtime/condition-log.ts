import type { QueueNode } from "../basics/queue.ts";
import { SharedInterval } from "../basics/timers.ts";

/** Something that lasts until an operator changes it, for example a certificate that has expired. */
export interface LoggedCondition {
  readonly level: "warn" | "error";
  readonly fields: object;
  readonly message: string;
  /** Tells it from another condition with the same message. */
  readonly content?: string;
}

/** The part of a logger that is used here. */
export interface ConditionSink {
  warn(fields: object, message: string): void;
  error(fields: object, message: string): void;
}

/** How often conditions are computed anew, ms: time alone can begin one. */
const CHECK_MS = 60_000;

/** Logs each condition once, when it begins, and again only when it has ended in between. */
export class ConditionLog {
  readonly #log: ConditionSink;
  readonly #conditions: () => Iterable<LoggedCondition>;
  readonly #node: QueueNode<() => void>;
  #logged: ReadonlySet<string> = new Set();
  #soon: NodeJS.Immediate | undefined;

  /** `conditions` returns those of now; it is called each minute until `close()`, the first time within a minute. */
  constructor(log: ConditionSink, conditions: () => Iterable<LoggedCondition>) {
    this.#log = log;
    this.#conditions = conditions;
    this.#node = SharedInterval.every(CHECK_MS).add(this.check);
  }

  readonly check = (): void => {
    clearImmediate(this.#soon);
    this.#soon = undefined;
    const present = new Set<string>();
    for (const { level, fields, message, content = "" } of this.#conditions()) {
      const key = `${message}\n${content}`;
      if (!this.#logged.has(key) && !present.has(key)) this.#log[level](fields, message);
      present.add(key);
    }
    this.#logged = present;
  };

  /** Checks in the next turn of the event loop: a thousand clusters that change together need one check. */
  checkSoon(): void {
    this.#soon ??= setImmediate(this.check);
  }

  close(): void {
    clearImmediate(this.#soon);
    this.#node.leave();
  }
}
