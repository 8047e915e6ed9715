/** A member's node in a queue. Its owner keeps it for as long as it likes; it is in one queue or in none. */
export class QueueNode<T> {
  readonly member: T;
  /** These three fields are the queue's own. */
  queue: Queue<T> | undefined;
  before: QueueNode<T> | undefined;
  behind: QueueNode<T> | undefined;

  constructor(member: T) {
    this.member = member;
    this.queue = undefined;
    this.before = undefined;
    this.behind = undefined;
  }

  /** Removes the node from its queue. Returns false if it is in none. */
  leave(): boolean {
    return this.queue?.leave(this) ?? false;
  }
}

/**
 * Members in the order in which they joined; any of them can leave. For members that come and go by the thousand a
 * second.
 *
 * A `Set` would do, but V8 replaces its table when it is full of deleted entries, and an old table that nobody uses
 * any more still keeps its entries alive through minor collections (docs/decisions/0018). This list keeps no reference
 * to a member that has left.
 */
export class Queue<T> {
  #first: QueueNode<T> | undefined;
  #last: QueueNode<T> | undefined;
  #size = 0;

  get size(): number {
    return this.#size;
  }

  /** The node that has been here for longest. */
  get first(): QueueNode<T> | undefined {
    return this.#first;
  }

  /** Puts the node after all others, out of any other queue; a node that is here already stays where it is. */
  join(node: QueueNode<T>): void {
    if (node.queue === this) return;
    node.leave();
    node.queue = this;
    node.before = this.#last;
    if (this.#last === undefined) this.#first = node;
    else this.#last.behind = node;
    this.#last = node;
    this.#size++;
  }

  /** Returns false if the node was not here. */
  leave(node: QueueNode<T>): boolean {
    if (node.queue !== this) return false;
    const { before, behind } = node;
    if (before === undefined) this.#first = behind;
    else before.behind = behind;
    if (behind === undefined) this.#last = before;
    else behind.before = before;
    node.queue = undefined;
    node.before = undefined;
    node.behind = undefined;
    this.#size--;
    return true;
  }

  /** Visits the members that are in the queue now; members that leave before their turn are skipped. */
  *[Symbol.iterator](): IterableIterator<T> {
    const nodes: QueueNode<T>[] = [];
    for (let node = this.#first; node !== undefined; node = node.behind) nodes.push(node);
    for (const node of nodes) if (node.queue === this) yield node.member;
  }

  clear(): void {
    while (this.#first !== undefined) this.leave(this.#first);
  }
}

/**
 * Members by id. The map has indices as its values and not the members: an old map that was full of deleted entries
 * would keep those alive until the next full collection (docs/decisions/0018).
 */
export class ById<T extends { readonly id: number }> {
  readonly #indexOf = new Map<number, number>();
  readonly #slots: (T | undefined)[] = [];
  readonly #free: number[] = [];

  get size(): number {
    return this.#indexOf.size;
  }

  get(id: number): T | undefined {
    const index = this.#indexOf.get(id);
    return index === undefined ? undefined : this.#slots[index];
  }

  /** Adds a member whose id no other member has. */
  add(member: T): void {
    const index = this.#free.pop() ?? this.#slots.length;
    this.#slots[index] = member;
    this.#indexOf.set(member.id, index);
  }

  /** Returns false if it was not here. */
  delete(member: T): boolean {
    const index = this.#indexOf.get(member.id);
    if (index === undefined || this.#slots[index] !== member) return false;
    this.#indexOf.delete(member.id);
    this.#slots[index] = undefined;
    this.#free.push(index);
    return true;
  }

  clear(): void {
    this.#indexOf.clear();
    this.#slots.length = 0;
    this.#free.length = 0;
  }

  *[Symbol.iterator](): IterableIterator<T> {
    for (const member of this.#slots) if (member !== undefined) yield member;
  }
}

/** A `Queue` of objects that keep no node themselves: what a `Set` of them would be, in the order of their arrival. */
export class OrderedSet<T extends object> {
  readonly #queue = new Queue<T>();
  readonly #nodes = new WeakMap<T, QueueNode<T>>();

  get size(): number {
    return this.#queue.size;
  }

  /** The member that has been here for longest. */
  get first(): T | undefined {
    return this.#queue.first?.member;
  }

  add(member: T): void {
    if (this.#nodes.has(member)) return;
    const node = new QueueNode(member);
    this.#nodes.set(member, node);
    this.#queue.join(node);
  }

  /** Returns false if it was not here. */
  delete(member: T): boolean {
    const node = this.#nodes.get(member);
    if (node === undefined) return false;
    this.#nodes.delete(member); // at once: until the next collection the table would keep the node, and so the member
    return this.#queue.leave(node);
  }

  /** Visits the members of this moment, without those that leave before their turn, even if they come back. */
  [Symbol.iterator](): IterableIterator<T> {
    return this.#queue[Symbol.iterator]();
  }
}

/** A map that keeps only the entries set most recently; one more replaces the entry that was set longest ago. */
export class RecentMap<K, V> {
  readonly #most: number;
  readonly #entries = new Map<K, V>();

  /** @param most how many entries are kept */
  constructor(most: number) {
    this.#most = most;
  }

  get(key: K): V | undefined {
    return this.#entries.get(key);
  }

  has(key: K): boolean {
    return this.#entries.has(key);
  }

  set(key: K, value: V): void {
    this.#entries.delete(key);
    this.#entries.set(key, value);
    if (this.#entries.size <= this.#most) return;
    for (const oldest of this.#entries.keys()) {
      this.#entries.delete(oldest);
      return;
    }
  }

  values(): Iterable<V> {
    return this.#entries.values();
  }

  delete(key: K): void {
    this.#entries.delete(key);
  }

  clear(): void {
    this.#entries.clear();
  }
}

/**
 * The value of this key in a map of any kind; if there is none, it is made and kept first.
 * `Map.prototype.getOrInsertComputed`, which Node has from version 26 on.
 */
export function getOrMake<K, V>(
  map: { get(key: K): V | undefined; set(key: K, value: V): unknown },
  key: K,
  make: () => V,
): V {
  const known = map.get(key);
  if (known !== undefined) return known;
  const made = make();
  map.set(key, made);
  return made;
}
