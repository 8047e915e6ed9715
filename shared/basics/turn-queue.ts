/** Jobs in one turn at most; each is about 0.3 ms of work, the listeners of what it ends or begins included. */
const MOST = 8;
/** A turn longer than this, ms, is one that a bystander notices. */
const LONG_MS = 4;

/**
 * Does what comes all at once a few at a time: the first at once, then so many in each turn of the loop as keep the turns
 * short, in order. What thousands of connections bring together, when a path that was away is back, must not keep the
 * others waiting (docs/decisions/0008).
 */
export class TurnQueue {
  /** In order. */
  readonly #waiting = new Set<() => void>();
  #perTurn = MOST;
  #room = MOST;
  #turn: NodeJS.Immediate | undefined;
  #begunAt = 0;
  readonly #now: () => number;

  /** `now`: ms, from any moment on. */
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
