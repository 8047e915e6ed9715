import { YamuxError } from "./errors.ts";

const REFRESH_EVERY_MS = 5_000;
const KEPT_SAMPLES = 4;
/** With so many pings unanswered the peer does not answer, and no more are sent. */
const MAX_UNDER_WAY = 64;

interface Ping {
  readonly sentAt: number;
  resolve(roundTripMs: number): void;
  reject(error: Error): void;
}

/** The pings of a session, and the shortest of its last round trips. */
export class Pings {
  readonly #now: () => number;
  readonly #send: (value: number) => void;
  readonly #underWay = new Map<number, Ping>();
  #samples: number[] = [];
  #nextValue = 1;
  #refreshedAt = Number.NEGATIVE_INFINITY;
  #stopped = false;

  constructor(now: () => number, send: (value: number) => void) {
    this.#now = now;
    this.#send = send;
  }

  /** The shortest of the last round trips, ms; 0 before the first answer. */
  leastMs = 0;

  ping(): Promise<number> {
    return new Promise((resolve, reject) => this.#start({ sentAt: this.#now(), resolve, reject }));
  }

  /** Returns `leastMs`, and measures again if it is old, so that no timer is needed. */
  refresh(): number {
    const now = this.#now();
    if (!this.#stopped && now - this.#refreshedAt >= REFRESH_EVERY_MS) {
      this.#refreshedAt = now;
      this.#start({ sentAt: now, resolve: () => {}, reject: () => {} });
    }
    return this.leastMs;
  }

  #start(ping: Ping): void {
    if (this.#stopped) {
      ping.reject(new YamuxError("closed", "the session has ended"));
      return;
    }
    if (this.#underWay.size >= MAX_UNDER_WAY) {
      ping.reject(new YamuxError("overloaded", `${MAX_UNDER_WAY} pings are unanswered`));
      return;
    }
    const value = this.#nextValue;
    this.#nextValue = (this.#nextValue + 1) >>> 0;
    this.#underWay.set(value, ping);
    this.#send(value);
  }

  /** The peer has answered; an answer to no ping is ignored. */
  onAnswer(value: number): void {
    const ping = this.#underWay.get(value);
    if (ping === undefined) return;
    this.#underWay.delete(value);
    const elapsed = this.#now() - ping.sentAt;
    this.#samples.push(elapsed);
    if (this.#samples.length > KEPT_SAMPLES) this.#samples.shift();
    this.leastMs = Math.min(...this.#samples);
    ping.resolve(elapsed);
  }

  stop(reason: Error | undefined): void {
    this.#stopped = true;
    for (const ping of this.#underWay.values()) {
      ping.reject(new YamuxError("closed", "the session ended before the ping was answered", { cause: reason }));
    }
    this.#underWay.clear();
  }
}
