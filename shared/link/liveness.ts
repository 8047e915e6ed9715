import { seconds } from "../basics/text.ts";

/** The peer is looked at so often in an interval. */
const LOOKS = 8;
/** Silence of so many intervals is death, although TCP says nothing (design: "Liveness"). */
const DEAD_AFTER_INTERVALS = 2.5;
/**
 * A peer that speaks may take so long before it reads on, ms: it acknowledges nothing while it opens another carrier.
 */
const LEAST_STUCK_MS = 10_000;
/** Pings come after between 0.8 and 1.2 intervals, so that thousands of carriers do not beat together. */
const JITTER = 0.2;

/** How long a peer may take to notice that nothing comes any more, ms. */
export function silenceMs(keepaliveMs: number): number {
  return DEAD_AFTER_INTERVALS * keepaliveMs;
}

export interface LivenessActions {
  ping(): void;
  /** Nothing was heard for too long. Called once. */
  dead(sentence: string): void;
  /** A ping was answered, so long after it was sent. */
  echo?(ms: number): void;
  /** How far the peer has read, in any measure that grows; `undefined`: nothing waits for it. */
  readonly progress?: readonly (() => number | undefined)[];
}

/** How far a peer had read at the last look, and how many looks ago it got on while something waited. */
interface Reader {
  readonly progress: () => number | undefined;
  at: number | undefined;
  looks: number;
}

/** Sends pings, and notices when the peer has fallen silent, or speaks and reads nothing. */
export class Liveness {
  readonly #actions: LivenessActions;
  #intervalMs: number;
  #lastByteAt = performance.now();
  #quietMs = 0;
  #watchedAt = performance.now();
  /** When the oldest ping that is not answered was sent. */
  #askedAt: number | undefined;
  /** When this process was last found to have been stopped. */
  #wokenAt = 0;
  readonly #readers: readonly Reader[];
  #pingTimer: NodeJS.Timeout | undefined;
  #probeTimer: NodeJS.Timeout | undefined;
  #stopped = false;
  #watchTimer: NodeJS.Timeout | undefined;

  constructor(intervalMs: number, actions: LivenessActions) {
    this.#intervalMs = intervalMs;
    this.#actions = actions;
    this.#readers = (actions.progress ?? []).map((progress) => ({ progress, at: undefined, looks: 0 }));
    this.#schedule();
  }

  heard(): void {
    const now = performance.now();
    this.#quietMs = Math.max(this.#quietMs, now - this.#lastByteAt);
    this.#lastByteAt = now;
  }

  /** The longest time without a byte after which one came all the same, ms. */
  get quietMs(): number {
    return this.#quietMs;
  }

  /** A pong came. It does not say to which ping: the longest time counts. */
  answered(): void {
    if (this.#askedAt === undefined) return;
    const ms = performance.now() - this.#askedAt;
    this.#askedAt = undefined;
    this.#actions.echo?.(ms);
  }

  #ping(): void {
    this.#askedAt ??= performance.now();
    this.#actions.ping();
  }

  /** When the last byte came, on the clock of `performance.now()`. */
  get lastByteAt(): number {
    return this.#lastByteAt;
  }

  /** Asks now, because there is doubt: without a byte within `withinMs` the peer is dead. */
  probe(withinMs: number): void {
    if (this.#probeTimer !== undefined || this.#stopped) return;
    const since = performance.now();
    this.#probeTimer = setTimeout(() => {
      this.#probeTimer = undefined;
      const silentMs = performance.now() - since;
      if (this.#lastByteAt >= since) return;
      // Late by so much, this process has stood still itself, and has not read what there is.
      if (silentMs > 2 * withinMs) this.probe(withinMs);
      else this.#die(silentMs);
    }, withinMs).unref();
    this.#ping();
  }

  setInterval(intervalMs: number): void {
    if (intervalMs === this.#intervalMs) return;
    this.#intervalMs = intervalMs;
    clearTimeout(this.#pingTimer);
    clearInterval(this.#watchTimer);
    this.#schedule();
  }

  stop(): void {
    this.#stopped = true;
    clearTimeout(this.#probeTimer);
    clearTimeout(this.#pingTimer);
    clearInterval(this.#watchTimer);
  }

  #schedule(): void {
    this.#watchedAt = performance.now();
    this.#schedulePing();
    this.#watchTimer = setInterval(this.#watch, this.#intervalMs / LOOKS).unref();
  }

  #schedulePing(): void {
    const jittered = this.#intervalMs * (1 - JITTER + 2 * JITTER * Math.random());
    this.#pingTimer = setTimeout(() => {
      this.#schedulePing(); // first: a ping that cannot be sent may stop all this
      this.#ping();
    }, jittered).unref();
  }

  readonly #watch = (): void => {
    const now = performance.now();
    const wasStopped = now - this.#watchedAt > this.#intervalMs;
    this.#watchedAt = now;
    // A process that was itself stopped has heard nothing because it did not listen: what waits in the kernel comes first.
    if (wasStopped) this.#wokenAt = now;
    const silentMs = now - Math.max(this.#lastByteAt, this.#wokenAt);
    if (silentMs >= silenceMs(this.#intervalMs)) this.#die(now - this.#lastByteAt);
    else if (!wasStopped && this.#readers.some((reader) => this.#isStuck(reader))) this.#dieUnread();
  };

  /** A path that is only slow gets on now and then. */
  #isStuck(reader: Reader): boolean {
    const at = reader.progress();
    reader.looks = at === undefined || at !== reader.at ? 0 : reader.looks + 1;
    reader.at = at;
    return (reader.looks * this.#intervalMs) / LOOKS >= this.#stuckMs;
  }

  get #stuckMs(): number {
    return Math.max(silenceMs(this.#intervalMs), LEAST_STUCK_MS);
  }

  #dieUnread(): void {
    this.stop();
    this.#actions.dead(`the peer speaks, and has read nothing for ${seconds(this.#stuckMs)}`);
  }

  #die(silentMs: number): void {
    this.stop();
    this.#actions.dead(`nothing was heard for ${(silentMs / 1000).toFixed(1)} s`);
  }
}
