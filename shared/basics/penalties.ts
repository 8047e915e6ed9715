/** The first penalty, ms; each further one is twice as long. */
const FIRST_MS = 1_000;
const MOST_MS = 60_000;
/** After so long without an offence a network begins anew, ms. */
const FORGET_MS = 600_000;
/** Most networks that are remembered; the one whose offence is oldest is forgotten for a newer one. */
const MAX_NETWORKS = 1_024;

interface Penalty {
  readonly ms: number;
  readonly untilMs: number;
}

/**
 * Networks from which a connection flooded this process wait before their next one: a flood that ends, and reconnects
 * at once, is one flood.
 */
export class Penalties {
  /** The oldest offence first. */
  readonly #penalties = new Map<string, Penalty>();
  readonly #now: () => number;

  /** `now`: ms, from any moment on. */
  constructor(now = () => performance.now()) {
    this.#now = now;
  }

  /** A connection of this network has flooded us. */
  add(network: string): void {
    const now = this.#now();
    const before = this.#penalties.get(network);
    const isRepeated = before !== undefined && now - before.untilMs < FORGET_MS;
    const ms = isRepeated ? Math.min(MOST_MS, 2 * before.ms) : FIRST_MS;
    this.#penalties.delete(network);
    this.#penalties.set(network, { ms, untilMs: now + ms });
    if (this.#penalties.size > MAX_NETWORKS) this.#penalties.delete(this.#penalties.keys().next().value ?? "");
  }

  /** How long the network must still wait, ms; 0: not at all. */
  leftMs(network: string): number {
    return Math.max(0, (this.#penalties.get(network)?.untilMs ?? 0) - this.#now());
  }
}
