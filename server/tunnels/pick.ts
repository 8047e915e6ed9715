/** The facts that decide which tunnel a CONNECT takes. */
export interface Pickable {
  readonly streamCount: number;
  /** One end accepts no new streams. */
  readonly draining: boolean;
  /** Its link has no carrier. */
  readonly suspended: boolean;
  readonly closed: boolean;
  /** The last dials of its agent have failed. */
  readonly rests: boolean;
  /** A number that grows with each use: the larger, the more recent. */
  readonly lastUsed: number;
}

/**
 * Picks the tunnel with the fewest streams that accepts new ones; among equals, the one that was used longest ago. A
 * tunnel whose dials fail comes after all others.
 */
export function pick<T extends Pickable>(tunnels: Iterable<T>, except?: T): T | undefined {
  let best: T | undefined;
  for (const tunnel of tunnels) {
    if (tunnel === except || tunnel.draining || tunnel.suspended || tunnel.closed) continue;
    if (best === undefined || precedes(tunnel, best)) best = tunnel;
  }
  return best;
}

function precedes(one: Pickable, other: Pickable): boolean {
  if (one.rests !== other.rests) return other.rests;
  if (one.streamCount !== other.streamCount) return one.streamCount < other.streamCount;
  return one.lastUsed < other.lastUsed;
}

/** So many failed dials in a row make an agent rest: fewer may be those of one target that is down. */
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
