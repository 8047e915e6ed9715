import type { QueueNode } from "../basics/collections.ts";
import { SharedInterval } from "../basics/timers.ts";
import type { Logger } from "./logger.ts";

/** Lines of one budget in one interval. */
const LINES = 10;
const INTERVAL_MS = 60_000;
/**
 * Budgets of one owner in use at one time. Later ones of this owner share one budget, so that peers cannot make this
 * map grow without a bound, nor one tenant hide the lines of another.
 */
const MAX_BUDGETS = 10_000;

type WarnLevel = "info" | "warn" | "error";
type Fields = Readonly<Record<string, unknown>>;

/** A limited number of lines that lines with the same key share. */
export interface LineBudget {
  readonly key: string;
  /** The tenant whose peers can make budgets, if it is known. */
  readonly owner?: string;
  readonly lines: number;
  /** Asked when `lines` are used up: the number of lines that this interval may have after all. */
  readonly moreLines?: () => number;
  /** What the line at the end of the interval says was omitted. */
  readonly subject: string;
  /** Fields of the line at the end of the interval. */
  readonly fields: Fields;
}

/** How a line is counted. */
interface LineOptions {
  /**
   * Separates lines with one message, so that a flood of one kind does not hide another. It is one of a few constants
   * and never text from a peer, which could otherwise get any number of lines.
   */
  readonly kind?: string;
  /** Lines with the same message and the same text here are repetitions: one of them is written in an interval. */
  readonly once?: string;
  /** Replaces the budget of the message. Each of them must have a line left. */
  readonly budgets?: readonly LineBudget[];
}

/** The use of a budget since its interval began. */
interface Usage {
  readonly level: WarnLevel;
  readonly written: Set<string>;
  lines: number;
  allowed: number;
  omitted: number;
}

/**
 * A log for lines that peers can cause as often as they like. The first lines of each message, and of each cluster or
 * server in its fields, have their own level; the rest of a minute is logged at debug level, and one line at its end
 * says how many lines that were. Metrics count every event.
 */
export class ThrottledLog {
  readonly #log: Logger;
  readonly #usages = new Map<string, Usage>();
  /** The number of usages of each owner. */
  readonly #owned = new Map<string, number>();

  constructor(log: Logger) {
    this.#log = log;
  }

  /** `message` is a constant. */
  write(level: WarnLevel, fields: Fields, message: string, { kind, once, budgets }: LineOptions = {}): void {
    const counted = this.#bounded(budgets ?? [messageBudget(fields, message, kind)]);
    const usedUp = counted.find((budget) => !this.#hasRoom(budget, once));
    if (usedUp !== undefined) {
      if (!this.#isRepetition(usedUp, once)) this.#usageOf(usedUp, level).omitted++;
      this.#log.debug(fields, message);
      return;
    }
    for (const budget of counted) {
      const usage = this.#usageOf(budget, level);
      usage.lines++;
      if (once !== undefined) usage.written.add(once);
    }
    this.#log[level](fields, message);
  }

  /** Replaces the budgets that would be too many for their owner by the one that the rest of its lines share. */
  #bounded(budgets: readonly LineBudget[]): readonly LineBudget[] {
    const hasPlace = ({ key, owner = "" }: LineBudget) =>
      this.#usages.has(key) || (this.#owned.get(owner) ?? 0) < MAX_BUDGETS;
    const within = budgets.filter(hasPlace);
    const other = budgets.find((budget) => !hasPlace(budget));
    return other === undefined ? within : [...within, sharedBudget(other.owner ?? "")];
  }

  /** Whether the line was written in this interval, with the same text. */
  #isRepetition({ key }: LineBudget, once: string | undefined): boolean {
    return once !== undefined && this.#usages.get(key)?.written.has(once) === true;
  }

  /** Does not count the line. A new budget is not stored before it has written a line. */
  #hasRoom({ key, lines, moreLines }: LineBudget, once: string | undefined): boolean {
    const usage = this.#usages.get(key);
    if (usage === undefined) return lines > 0;
    if (once !== undefined && usage.written.has(once)) return false;
    // `moreLines` may count thousands of agents: it is not asked for each line of a flood.
    if (usage.lines >= usage.allowed && usage.omitted % lines === 0)
      usage.allowed = Math.max(usage.allowed, moreLines?.() ?? 0);
    return usage.lines < usage.allowed;
  }

  #usageOf(budget: LineBudget, level: WarnLevel): Usage {
    const known = this.#usages.get(budget.key);
    if (known !== undefined) return known;
    const usage: Usage = { level, written: new Set(), lines: 0, allowed: budget.lines, omitted: 0 };
    const owner = budget.owner ?? "";
    this.#usages.set(budget.key, usage);
    this.#owned.set(owner, (this.#owned.get(owner) ?? 0) + 1);
    setTimeout(() => this.#endInterval(budget, usage), INTERVAL_MS).unref();
    return usage;
  }

  #endInterval({ key, owner = "", subject, fields }: LineBudget, { level, omitted }: Usage): void {
    this.#usages.delete(key);
    const left = (this.#owned.get(owner) ?? 1) - 1;
    if (left === 0) this.#owned.delete(owner);
    else this.#owned.set(owner, left);
    if (omitted > 0)
      this.#log[level](
        { ...fields, omitted },
        `${subject}: ${omitted} more in a minute were logged at debug level only`,
      );
  }
}

function sharedBudget(owner: string): LineBudget {
  const fields = owner === "" ? {} : { cluster: owner };
  return { key: `\n${owner}`, owner, lines: LINES, subject: "lines about many different things", fields };
}

function messageBudget({ cluster, server }: Fields, message: string, kind: string | undefined): LineBudget {
  const key = [cluster ?? server ?? "", message, kind ?? ""].join("\n");
  return { key, lines: LINES, subject: message, fields: { cluster, server, kind } };
}

/** Something that lasts until an operator changes it, for example a certificate that has expired. */
export interface LoggedCondition {
  readonly level: "warn" | "error";
  readonly fields: object;
  readonly message: string;
  /** Tells it from another condition with the same message. */
  readonly content?: string;
}

/** The part of a logger that is used here. */
interface ConditionSink {
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
