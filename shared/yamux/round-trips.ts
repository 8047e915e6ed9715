import { YamuxError } from "./errors.ts";

const REFRESH_EVERY_MS = 5_000;
const KEPT_SAMPLES = 4;
/** More pings than this under way at once: the peer does not answer, and the oldest stands for all. */
const MAX_UNDER_WAY = 64;

interface Ping {
  readonly sentAt: number;
  resolve(roundTripMs: number): void;
  reject(error: Error): void;
}

/** The session's pings: who waits for which answer, and the least round trip of the last few. */
export class RoundTrips {
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

  /** 0 before the first answer. */
  leastMs = 0;

  ping(): Promise<number> {
    return new Promise((resolve, reject) => this.#start({ sentAt: this.#now(), resolve, reject }));
  }

  /** Measures again when the last measurement has aged; called where the figure is used, so nothing has to tick. */
  refresh(): void {
    const now = this.#now();
    if (this.#stopped || now - this.#refreshedAt < REFRESH_EVERY_MS) return;
    this.#refreshedAt = now;
    this.#start({ sentAt: now, resolve: () => {}, reject: () => {} });
  }

  #start(ping: Ping): void {
    if (this.#underWay.size >= MAX_UNDER_WAY) {
      ping.reject(new YamuxError("overloaded", `${MAX_UNDER_WAY} pings are unanswered`));
      return;
    }
    const value = this.#nextValue;
    this.#nextValue = (this.#nextValue + 1) >>> 0;
    this.#underWay.set(value, ping);
    this.#send(value);
  }

  /** The peer answered; an answer to nothing is ignored. */
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
