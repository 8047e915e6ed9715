import { seconds } from "../basics/text.ts";

/** How often the peer is checked in an interval. */
const LOOKS = 8;
/** After silence of this number of intervals the carrier is lost, even if TCP reports nothing. */
const DEAD_AFTER_INTERVALS = 2.5;
/** A peer that sends may take this time to read on, ms: it acknowledges nothing while it opens another carrier. */
const LEAST_STUCK_MS = 10_000;
/** Pings are sent after 0.8 to 1.2 intervals, so that thousands of carriers do not send theirs together. */
const JITTER = 0.2;

/** How long a peer takes to notice that nothing arrives any more, ms. */
export function silenceMs(keepaliveMs: number): number {
  return DEAD_AFTER_INTERVALS * keepaliveMs;
}

interface LivenessActions {
  /** When the last byte of the peer arrived, on the clock of `performance.now()`. */
  lastByteAt(): number;
  ping(): void;
  /** The carrier is lost. Called once. */
  dead(sentence: string): void;
  /** A ping was answered after this time, ms. */
  echo?(ms: number): void;
  /** How far the peer has read, in any unit; `undefined`: nothing waits for it. */
  readonly progress?: readonly (() => number | undefined)[];
}

/** How far a peer had read at the last check, and in how many checks since then it read nothing of what waited. */
interface Reader {
  readonly progress: () => number | undefined;
  at: number | undefined;
  looks: number;
}

/** Sends pings, and notices when the peer has fallen silent, or sends and reads nothing. */
export class Liveness {
  readonly #actions: LivenessActions;
  #intervalMs: number;
  #watchedAt = performance.now();
  /** When the oldest unanswered ping was sent. */
  #askedAt: number | undefined;
  /** When this process was last found to have been stopped (SIGSTOP, a frozen machine). */
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

  /** A pong arrived. It does not say to which ping it belongs, so the longest time counts. */
  answered(): void {
    if (this.#askedAt === undefined) return;
    this.#actions.echo?.(performance.now() - this.#askedAt);
    this.#askedAt = undefined;
  }

  #ping(): void {
    this.#askedAt ??= performance.now();
    this.#actions.ping();
  }

  /** Sends a ping now: without a byte within `withinMs` the carrier is lost. */
  probe(withinMs: number): void {
    if (this.#probeTimer !== undefined || this.#stopped) return;
    const since = performance.now();
    this.#probeTimer = setTimeout(() => {
      this.#probeTimer = undefined;
      const silentMs = performance.now() - since;
      if (this.#actions.lastByteAt() >= since) return;
      // A timer that is this late means that this process was stopped and has not read what arrived.
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
      this.#schedulePing(); // first, because a ping that cannot be sent may call stop()
      this.#ping();
    }, jittered).unref();
  }

  readonly #watch = (): void => {
    const now = performance.now();
    const wasStopped = now - this.#watchedAt > this.#intervalMs;
    this.#watchedAt = now;
    // A process that was stopped did not read. Bytes that wait in the kernel come first.
    if (wasStopped) this.#wokenAt = now;
    const lastByteAt = this.#actions.lastByteAt();
    const silentMs = now - Math.max(lastByteAt, this.#wokenAt);
    if (silentMs >= silenceMs(this.#intervalMs)) this.#die(now - lastByteAt);
    else if (!wasStopped && this.#readers.some((reader) => this.#isStuck(reader))) {
      this.stop();
      this.#actions.dead(`the peer speaks, and has read nothing for ${seconds(this.#stuckMs)}`);
    }
  };

  /** Whether the peer has read nothing for too long. On a slow path it reads something now and then. */
  #isStuck(reader: Reader): boolean {
    const at = reader.progress();
    reader.looks = at === undefined || at !== reader.at ? 0 : reader.looks + 1;
    reader.at = at;
    // A cut connection may be reset only when we send, and what waits for the peer may be all that we would send.
    if (reader.looks === 1) this.#ping();
    return (reader.looks * this.#intervalMs) / LOOKS >= this.#stuckMs;
  }

  get #stuckMs(): number {
    return Math.max(silenceMs(this.#intervalMs), LEAST_STUCK_MS);
  }

  #die(silentMs: number): void {
    this.stop();
    this.#actions.dead(`nothing was received for ${(silentMs / 1000).toFixed(1)} s`);
  }
}
