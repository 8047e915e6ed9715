/** Jobs in one turn of the event loop at most; each is about 0.3 ms of work, with the listeners that it calls. */
const MOST = 8;
/** A longer turn, ms, would be noticed by other connections. */
const LONG_MS = 4;

/**
 * Runs jobs that come all at once a few at a time, in order: the first at once, then in each turn of the event loop as
 * many as keep the turns short. When a lost path is back, thousands of connections come together, and the others must
 * not wait for them (docs/decisions/0008).
 */
export class TurnQueue {
  readonly #waiting = new Set<() => void>();
  #perTurn = MOST;
  #room = MOST;
  #turn: NodeJS.Immediate | undefined;
  #begunAt = 0;
  readonly #now: () => number;

  /** @param now ms, from any moment on */
  constructor(now = () => performance.now()) {
    this.#now = now;
  }

  /** The job may run before this returns, and must not throw. */
  run(job: () => void): void {
    if (this.#turn === undefined) this.#beginTurn();
    if (this.#room === 0 || this.#waiting.size > 0) {
      this.#waiting.add(job);
      return;
    }
    this.#room--;
    job();
  }

  #beginTurn(): void {
    this.#room = this.#perTurn;
    this.#begunAt = this.#now();
    this.#turn = setImmediate(this.#onTurn);
  }

  #runSome(): void {
    for (const job of this.#waiting) {
      if (this.#room === 0) return;
      this.#room--;
      this.#waiting.delete(job);
      job();
    }
  }

  readonly #onTurn = (): void => {
    this.#turn = undefined;
    const tookMs = this.#now() - this.#begunAt;
    this.#perTurn = tookMs > LONG_MS ? Math.ceil(this.#perTurn / 2) : Math.min(MOST, this.#perTurn + 1);
    if (this.#waiting.size === 0) return;
    this.#beginTurn();
    this.#runSome();
  };
}
