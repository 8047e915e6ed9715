import { Crowd } from "../queue.ts";

export interface HandshakeQueueOptions<T> {
  /** Most that may be in progress at once, however short the turns are. */
  readonly most: number;
  begin(item: T): void;
}

/** So many may be in progress at once even while the loop is late: what else keeps it busy must not keep everybody out. */
const LEAST = 4;
/** While somebody waits, the loop is looked at so often, ms. */
const LOOK_MS = 5;
/** Later than that, ms, and a bystander would notice. */
const LATE_MS = 10;
/** What is not done by then waits for its peer, not for us, ms: it does not keep the next one from beginning. */
const SLOW_MS = 200;
/** Fewer beginnings tell nothing about the pace. */
const PACE_SAMPLES = 50;

/**
 * How many may be in progress, now that the loop was so late: half when that is too much, else a quarter more. So fast,
 * because thousands that begin and never go on cost no time, and must not stand in front of those who do. Pure.
 */
export function nextLimit(limit: number, lateMs: number, most: number): number {
  const next = lateMs > LATE_MS ? Math.floor(limit / 2) : limit + Math.ceil(limit / 4);
  return Math.min(most, Math.max(LEAST, next));
}

/**
 * Who may begin a TLS handshake, and when (docs/decisions/0008): in the order of arrival, one in a turn of the loop, and
 * no more in progress than leave the turns short. Knows no sockets.
 *
 * ```
 *  enter ─▶ waiting ──────▶ begun ──────▶ (slow: goes on, and is no longer counted)
 *              │ leave         │ leave: the next may begin
 * ```
 */
export class HandshakeQueue<T extends object> {
  readonly #options: HandshakeQueueOptions<T>;
  /** In the order of arrival; those in `#first` go before the others. */
  readonly #waiting = new Crowd<T>();
  readonly #first = new Crowd<T>();
  /** In progress and not slow. */
  readonly #begun = new Crowd<T>();
  readonly #begunAt = new WeakMap<T, number>();
  #limit: number;
  #turn: NodeJS.Immediate | undefined;
  #look: NodeJS.Timeout | undefined;
  #lookedAt = 0;
  #cpuMs = 0;
  /** Since when somebody has waited without a break, and how many have begun since. */
  #busySince = 0;
  #begunSince = 0;

  constructor(options: HandshakeQueueOptions<T>) {
    this.#options = options;
    this.#limit = nextLimit(0, 0, options.most);
  }

  get waiting(): number {
    return this.#waiting.size + this.#first.size;
  }

  /** How long it takes, at the pace of this rush, until all that wait now have begun, ms; 0 while that is not known. */
  get drainMs(): number {
    if (this.#begunSince < PACE_SAMPLES) return 0;
    return (this.waiting * (performance.now() - this.#busySince)) / this.#begunSince;
  }

  enter(item: T): void {
    this.#enter(this.#waiting, item);
  }

  /** Before all that wait. */
  enterFirst(item: T): void {
    this.#enter(this.#first, item);
  }

  /** It has gone before its turn, or its handshake is over. */
  leave(item: T): void {
    if (this.#waiting.delete(item) || this.#first.delete(item)) return;
    if (this.#forget(item)) this.#schedule();
  }

  #forget(item: T): boolean {
    this.#begunAt.delete(item);
    return this.#begun.delete(item);
  }

  /** Forgets all, and answers those that waited. */
  clear(): T[] {
    const waited = [...this.#first, ...this.#waiting];
    for (const items of [this.#first, this.#waiting, this.#begun]) items.clear();
    clearImmediate(this.#turn);
    this.#turn = undefined;
    this.#stopLooking();
    return waited;
  }

  #enter(line: Crowd<T>, item: T): void {
    if (this.waiting === 0) {
      this.#busySince = performance.now();
      this.#begunSince = 0;
    }
    line.add(item);
    this.#schedule();
  }

  #schedule(): void {
    if (this.waiting === 0) return;
    if (this.#begun.size < this.#limit) this.#turn ??= setImmediate(this.#beginOne);
    if (this.#look === undefined) this.#startLooking();
  }

  readonly #beginOne = (): void => {
    this.#turn = undefined;
    const line = this.#first.size > 0 ? this.#first : this.#waiting;
    const item = line.first;
    if (item === undefined) return;
    const now = performance.now();
    this.#begunSince++;
    line.delete(item);
    this.#begun.add(item);
    this.#begunAt.set(item, now);
    this.#options.begin(item);
    this.#schedule();
  };

  // ── how late the loop is ───────────────────────────────────────────────────────────────────────────────────────

  #startLooking(): void {
    this.#lookedAt = performance.now();
    this.#cpuMs = cpuNow();
    this.#look = setInterval(this.#onLook, LOOK_MS);
  }

  #stopLooking(): void {
    clearInterval(this.#look);
    this.#look = undefined;
    this.#limit = nextLimit(0, 0, this.#options.most);
  }

  readonly #onLook = (): void => {
    if (this.waiting === 0) {
      this.#stopLooking();
      return;
    }
    const [now, cpuMs] = [performance.now(), cpuNow()];
    // A loop that did not get the processor is late as well, but not for what it does.
    const lateMs = Math.min(now - this.#lookedAt - LOOK_MS, cpuMs - this.#cpuMs);
    this.#lookedAt = now;
    this.#cpuMs = cpuMs;
    this.#forgetSlow(now);
    this.#limit = nextLimit(this.#limit, lateMs, this.#options.most);
    this.#schedule();
  };

  #forgetSlow(now: number): void {
    let { first } = this.#begun;
    while (first !== undefined && now - (this.#begunAt.get(first) ?? 0) >= SLOW_MS) {
      this.#forget(first); // those behind it began later
      first = this.#begun.first;
    }
  }
}

/** What the process has used of the processor, ms. */
function cpuNow(): number {
  const { user, system } = process.cpuUsage();
  return (user + system) / 1_000;
}
