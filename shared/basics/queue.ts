/** A place in a queue. Its holder keeps it for as long as it likes, and stands in one queue with it or in none. */
export class Place<T> {
  readonly member: T;
  /** This and what follows is the queue's own. */
  queue: Queue<T> | undefined;
  before: Place<T> | undefined;
  behind: Place<T> | undefined;

  constructor(member: T) {
    this.member = member;
    this.queue = undefined;
    this.before = undefined;
    this.behind = undefined;
  }

  /** Wherever it stands; false: nowhere. */
  leave(): boolean {
    return this.queue?.leave(this) ?? false;
  }
}

/**
 * Members in the order in which they came, of whom any may leave: for those who come and go by the thousand a second.
 *
 * A Set would do, and is what it was. But V8 puts a table with new room in the place of one that is full of deleted entries, an
 * old one in the place of an old one, and all that an old object names, also when nobody has that object any more, survives minor
 * collections: with 32 connections at a time each of them so became old (docs/decisions/0018). Who has left here is named by nobody.
 */
export class Queue<T> {
  #first: Place<T> | undefined;
  #last: Place<T> | undefined;
  #size = 0;

  get size(): number {
    return this.#size;
  }

  /** Whoever has been here for longest. */
  get first(): Place<T> | undefined {
    return this.#first;
  }

  /** Behind all others; whoever is here already stays where he is. */
  join(place: Place<T>): void {
    if (place.queue === this) return;
    place.leave();
    place.queue = this;
    place.before = this.#last;
    if (this.#last === undefined) this.#first = place;
    else this.#last.behind = place;
    this.#last = place;
    this.#size++;
  }

  /** False: he was not here. */
  leave(place: Place<T>): boolean {
    if (place.queue !== this) return false;
    const { before, behind } = place;
    if (before === undefined) this.#first = behind;
    else before.behind = behind;
    if (behind === undefined) this.#last = before;
    else behind.before = before;
    place.queue = undefined;
    place.before = undefined;
    place.behind = undefined;
    this.#size--;
    return true;
  }

  /** Those who are here now, but for those who are not when it is their turn. */
  *[Symbol.iterator](): IterableIterator<T> {
    const places: Place<T>[] = [];
    for (let place = this.#first; place !== undefined; place = place.behind) places.push(place);
    for (const place of places) if (place.queue === this) yield place.member;
  }

  clear(): void {
    while (this.#first !== undefined) this.leave(this.#first);
  }
}

/** A `Queue` of objects that hold no place themselves: what a `Set` is to them, for as many as that. */
export class Crowd<T extends object> {
  readonly #queue = new Queue<T>();
  readonly #places = new WeakMap<T, Place<T>>();

  get size(): number {
    return this.#queue.size;
  }

  /** Whoever has been here for longest. */
  get first(): T | undefined {
    return this.#queue.first?.member;
  }

  add(member: T): void {
    if (this.#places.has(member)) return;
    const place = new Place(member);
    this.#places.set(member, place);
    this.#queue.join(place);
  }

  /** False: it was not here. */
  delete(member: T): boolean {
    const place = this.#places.get(member);
    if (place === undefined) return false;
    this.#places.delete(member); // now, and not when it is collected: the table would keep the place
    return this.#queue.leave(place);
  }

  /** Those who are here now, but for those who leave before it is their turn, also if they come back. */
  [Symbol.iterator](): IterableIterator<T> {
    return this.#queue[Symbol.iterator]();
  }

  clear(): void {
    for (const member of this) this.delete(member);
  }
}
