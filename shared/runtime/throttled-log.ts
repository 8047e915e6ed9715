import type { QueueNode } from "../basics/collections.ts";
import { SharedInterval } from "../basics/timers.ts";
import type { Logger } from "./logger.ts";

/** Lines of one kind in one interval. */
const LINES = 10;
/**
 * Lines of one tenant in one interval, with all their kinds. With as many lines about those that were left out, each of
 * at most 800 bytes, that is 1 MiB a minute, whatever the tenant does.
 */
const TENANT_LINES = 600;
const INTERVAL_MS = 60_000;

type WarnLevel = "info" | "warn" | "error";
type Fields = Readonly<Record<string, unknown>>;

/** How a line is counted. */
interface LineOptions {
  /** Separates lines with one message, so that a flood of one kind does not hide another. */
  readonly kind?: string;
  /** How many lines of this kind are written in one interval. */
  readonly lines?: number;
  /** Whose peers cause the line. By default it is the cluster or the server in the fields; names are not invented. */
  readonly tenant?: string;
}

/** Lines of one kind that were left out. */
interface Omitted {
  readonly level: WarnLevel;
  readonly message: string;
  lines: number;
  count: number;
  last: Fields;
}

/** The interval of one tenant, which begins with its first line. */
interface Tenant {
  lines: number;
  readonly kinds: Map<string, Omitted>;
}

/** Key and subject of lines that are left out when their tenant has no line left for another kind. */
const OTHERS = "lines about many different things";

/**
 * A log for lines that peers can cause as often as they like. The first lines of each kind are written in full; the
 * rest of a minute is logged at debug level, and one line at its end says how many lines that were, with the fields of
 * the last one. Metrics count every event.
 */
export class ThrottledLog {
  readonly #log: Logger;
  readonly #tenants = new Map<string, Tenant>();

  constructor(log: Logger) {
    this.#log = log;
  }

  /** `message` is a constant. */
  write(level: WarnLevel, fields: Fields, message: string, options: LineOptions = {}): void {
    const { kind = "", lines = LINES, tenant = fields["cluster"] ?? fields["server"] ?? "" } = options;
    const counts = this.#tenants.get(String(tenant)) ?? this.#begin(String(tenant));
    const key = `${message}\n${kind}`;
    const known = counts.kinds.get(key);
    if (counts.lines < TENANT_LINES && (known?.lines ?? 0) < lines) {
      counts.lines++;
      if (known === undefined) counts.kinds.set(key, { level, message, lines: 1, count: 0, last: fields });
      else known.lines++;
      this.#log[level](fields, message);
      return;
    }
    const omitted = known ?? counts.kinds.get(OTHERS) ?? { level, message: OTHERS, lines: 0, count: 0, last: fields };
    if (known === undefined) counts.kinds.set(OTHERS, omitted);
    omitted.count++;
    omitted.last = fields;
    this.#log.debug(fields, message);
  }

  #begin(name: string): Tenant {
    const tenant: Tenant = { lines: 0, kinds: new Map() };
    this.#tenants.set(name, tenant);
    setTimeout(() => {
      this.#tenants.delete(name);
      for (const omitted of tenant.kinds.values()) this.#logOmitted(omitted);
    }, INTERVAL_MS).unref();
    return tenant;
  }

  #logOmitted({ level, message, count, last }: Omitted): void {
    if (count === 0) return;
    const sentence = `${message}: ${count} more in a minute were logged at debug level only; this is the last one`;
    this.#log[level]({ ...last, omitted: count }, sentence);
  }
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
