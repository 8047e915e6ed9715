import type { Duplex } from "node:stream";
import { BySource } from "../../shared/basics/by-source.ts";

interface Waiting {
  readonly drop: () => void;
}

/** So many clusters or ports may have as many as one may have (`--max-waiting-connections`). */
export const FULL_ONES = 4;

/**
 * Connections of all TCP ports and clusters together that have passed TLS and have not said what they want. One too
 * many drops the oldest of the network that has most.
 */
export class WaitingConnections {
  readonly #most: number;
  readonly #entries = new WeakMap<Duplex, Waiting>();
  readonly #all = new BySource<Waiting>();

  /** `mostOfOne`: of one cluster or port. */
  constructor(mostOfOne: number) {
    this.#most = FULL_ONES * mostOfOne;
  }

  get size(): number {
    return this.#all.size;
  }

  /** `drop` ends the socket; `delete` is called before, or by it. */
  add(socket: Duplex, network: string, drop: () => void): void {
    const entry = { drop };
    this.#entries.set(socket, entry);
    this.#all.add(entry, network);
    if (this.#all.size > this.#most) this.#all.oldestOfFullest?.drop();
  }

  delete(socket: Duplex): void {
    const entry = this.#entries.get(socket);
    if (entry === undefined) return;
    this.#entries.delete(socket);
    this.#all.delete(entry);
  }
}
