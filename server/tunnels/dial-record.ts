/** Dials in a row that fail before their agent rests: fewer may be those of one target that is away. */
const FAILURES = 3;
/** The first rest, ms; each further failure doubles it. */
const FIRST_REST_MS = 1_000;
const LONGEST_REST_MS = 30_000;

/**
 * How the last dials of an agent ended. One whose own network is broken fails at once and holds no streams, so that it
 * would be picked for every CONNECT of its cluster: while its dials fail it rests, and other agents are asked. A dial that
 * succeeds ends that.
 */
export class DialRecord {
  readonly #now: () => number;
  #failures = 0;
  #restsUntil = 0;

  /** `now`: ms, from any moment on. */
  constructor(now = () => performance.now()) {
    this.#now = now;
  }

  /** Other agents are to be asked, where there are any. */
  get rests(): boolean {
    return this.#now() < this.#restsUntil;
  }

  succeeded(): void {
    this.#failures = 0;
    this.#restsUntil = 0;
  }

  /** Of several dials under way together each counts, and the rest begins with the last. */
  failed(): void {
    this.#failures++;
    if (this.#failures < FAILURES) return;
    const restMs = FIRST_REST_MS * 2 ** (this.#failures - FAILURES);
    this.#restsUntil = this.#now() + Math.min(LONGEST_REST_MS, restMs);
  }
}
