/** Number of failed dials in a row after which an agent rests: fewer may be those of one target that is down. */
const FAILURES = 3;
/** The first rest, ms; each further failure doubles it. */
const FIRST_REST_MS = 1_000;
const LONGEST_REST_MS = 30_000;

/**
 * The results of an agent's last dials. An agent whose own network is broken fails at once and has no streams, so that
 * it would be picked for every CONNECT of its cluster. While its dials fail it rests, and other agents are picked; a
 * dial that succeeds ends the rest.
 */
export class DialRecord {
  readonly #now: () => number;
  #failures = 0;
  #restsUntil = 0;

  /** `now`: a clock in ms with any origin. */
  constructor(now = () => performance.now()) {
    this.#now = now;
  }

  /** Other agents are picked before this one. */
  get rests(): boolean {
    return this.#now() < this.#restsUntil;
  }

  succeeded(): void {
    this.#failures = 0;
    this.#restsUntil = 0;
  }

  /** Each of several concurrent dials counts, and the rest begins with the last. */
  failed(): void {
    this.#failures++;
    if (this.#failures < FAILURES) return;
    const restMs = FIRST_REST_MS * 2 ** (this.#failures - FAILURES);
    this.#restsUntil = this.#now() + Math.min(LONGEST_REST_MS, restMs);
  }
}
