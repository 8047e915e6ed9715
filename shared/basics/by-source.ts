import { getOrMake, Queue, QueueNode } from "./collections.ts";

/** Number of sources without items that are kept: the items of a busy source come and go by the thousand a second. */
const KEPT_EMPTY = 64;

/** The items of one source, in order of arrival. */
class SourceLine<T> {
  readonly source: string;
  readonly items = new Queue<T>();
  readonly turn: QueueNode<SourceLine<T>> = new QueueNode(this);
  /** Node of this source among the sources that have as many items. */
  readonly rank: QueueNode<SourceLine<T>> = new QueueNode(this);

  constructor(source: string) {
    this.source = source;
  }
}

interface Entry<T> {
  readonly line: SourceLine<T>;
  readonly inLine: QueueNode<T>;
  readonly inOrder: QueueNode<T>;
}

/**
 * Items of many sources (networks, identities) that share one bound. It knows which source has most items, so that the
 * oldest of them can make room for a new one, and whose turn is next: a source that floods displaces its own items, and
 * waits behind itself. All operations take constant time.
 */
export class BySource<T extends object> {
  readonly #entries = new WeakMap<T, Entry<T>>();
  /** All items in order of arrival. */
  readonly #order = new Queue<T>();
  readonly #lines = new Map<string, SourceLine<T>>();
  /** Sources that have items, in the order of their turns. */
  readonly #turns = new Queue<SourceLine<T>>();
  /** Sources by their number of items; at 0 those that are kept without any. */
  readonly #ranks: Queue<SourceLine<T>>[] = [new Queue()];
  #most = 0;

  get size(): number {
    return this.#order.size;
  }

  /** The number of sources that have items. */
  get sources(): number {
    return this.#turns.size;
  }

  sizeOf(source: string): number {
    return this.#lines.get(source)?.items.size ?? 0;
  }

  has(item: T): boolean {
    return this.#entries.has(item);
  }

  /** Adds an item; one that is here already stays where it is. */
  add(item: T, source: string): void {
    if (this.#entries.has(item)) return;
    const line = getOrMake(this.#lines, source, () => new SourceLine<T>(source));
    const entry = { line, inLine: new QueueNode(item), inOrder: new QueueNode(item) };
    this.#entries.set(item, entry);
    this.#order.join(entry.inOrder);
    line.items.join(entry.inLine);
    this.#turns.join(line.turn);
    this.#rank(line);
  }

  /** Returns false if it was not here. */
  delete(item: T): boolean {
    const entry = this.#entries.get(item);
    if (entry === undefined) return false;
    this.#entries.delete(item);
    const { line, inLine, inOrder } = entry;
    const hadItsTurn = this.#turns.first === line.turn && line.items.first === inLine;
    inOrder.leave();
    inLine.leave();
    if (hadItsTurn || line.items.size === 0) line.turn.leave();
    if (line.items.size > 0) this.#turns.join(line.turn);
    this.#rank(line);
    return true;
  }

  /** The number of items of the source that has most. */
  get fullest(): number {
    return this.#most;
  }

  /** The oldest item of the source that has most: the one to drop when there are too many items. */
  get oldestOfFullest(): T | undefined {
    return this.#ranks[this.#most]?.first?.member.items.first?.member;
  }

  /** The oldest item of the source whose turn it is. Deleting it gives the turn to another source. */
  get next(): T | undefined {
    return this.#turns.first?.member.items.first?.member;
  }

  /** Gives the turn to another source without deleting an item. */
  passTurn(): void {
    const line = this.#turns.first?.member;
    if (line === undefined) return;
    line.turn.leave();
    this.#turns.join(line.turn);
  }

  /** Visits the items in order of arrival, without those that leave before their turn. */
  [Symbol.iterator](): IterableIterator<T> {
    return this.#order[Symbol.iterator]();
  }

  /** Called when the number of its items has changed by one. */
  #rank(line: SourceLine<T>): void {
    const { size } = line.items;
    this.#ranks[size] ??= new Queue();
    this.#ranks[size].join(line.rank);
    if (size > this.#most) this.#most = size;
    else if (this.#ranks[this.#most]?.size === 0) this.#most--;
    const empty = this.#ranks[0];
    if (size > 0 || empty === undefined || empty.size <= KEPT_EMPTY) return;
    const forgotten = empty.first?.member as SourceLine<T>;
    forgotten.rank.leave();
    this.#lines.delete(forgotten.source);
  }
}
