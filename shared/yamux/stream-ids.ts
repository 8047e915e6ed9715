/**
 * Which stream ids the peer has used. Ids rise by two, but an honest peer that opens streams from several threads may
 * put its SYNs on the wire in another order, so a few ids below the highest may still come.
 */
const MAX_SKIPPED = 1024;

export class PeerStreamIds {
  readonly #parity: number;
  #highest = 0;
  readonly #skipped = new Set<number>();

  /** @param first the first id of that side: 1 for a client, 2 for a server (spec, "Stream ID field"). */
  constructor(first: 1 | 2) {
    this.#parity = first % 2;
    this.#highest = first - 2;
  }

  /** Takes an id for a new stream. A sentence: why the peer may not use it. */
  use(id: number): string | undefined {
    if (id === 0) return "stream 0 is the session itself";
    if (id % 2 !== this.#parity) return `stream ${id} has the other side's parity`;
    if (id <= this.#highest) return this.#skipped.delete(id) ? undefined : `stream ${id} was used before`;
    const skipped = (id - this.#highest) / 2 - 1;
    if (this.#skipped.size + skipped > MAX_SKIPPED) return `stream ${id} skips too many ids`;
    for (let missing = this.#highest + 2; missing < id; missing += 2) this.#skipped.add(missing);
    this.#highest = id;
    return undefined;
  }

  /** Was `id` opened at some time? */
  has(id: number): boolean {
    return id > 0 && id <= this.#highest && id % 2 === this.#parity && !this.#skipped.has(id);
  }
}

/** The ids of streams that we open. */
export class OwnStreamIds {
  readonly #first: number;
  readonly #max: number;
  #taken = 0;

  /** @param max how many there are; the spec never uses one twice. */
  constructor(first: 1 | 2, max: number) {
    this.#first = first;
    this.#max = max;
  }

  get exhausted(): boolean {
    return this.#taken >= this.#max;
  }

  take(): number {
    return this.#first + 2 * this.#taken++;
  }

  /** Is `id` one of this side's, used or not? */
  owns(id: number): boolean {
    return id > 0 && id % 2 === this.#first % 2;
  }

  /** Was `id` opened at some time? */
  has(id: number): boolean {
    return this.owns(id) && id < this.#first + 2 * this.#taken;
  }
}
