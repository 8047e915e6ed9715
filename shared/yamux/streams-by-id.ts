import type { Stream } from "./stream.ts";

/**
 * The open streams by id. The map has indices as its values and not the streams: an old map that was full of deleted
 * entries would keep those alive until the next full collection (docs/decisions/0018).
 */
export class StreamsById {
  readonly #indexOf = new Map<number, number>();
  readonly #slots: (Stream | undefined)[] = [];
  readonly #free: number[] = [];

  get size(): number {
    return this.#indexOf.size;
  }

  get(id: number): Stream | undefined {
    const index = this.#indexOf.get(id);
    return index === undefined ? undefined : this.#slots[index];
  }

  /** Adds a stream whose id no other stream has. */
  add(stream: Stream): void {
    const index = this.#free.pop() ?? this.#slots.length;
    this.#slots[index] = stream;
    this.#indexOf.set(stream.id, index);
  }

  /** Returns false if it was not here. */
  delete(stream: Stream): boolean {
    const index = this.#indexOf.get(stream.id);
    if (index === undefined || this.#slots[index] !== stream) return false;
    this.#indexOf.delete(stream.id);
    this.#slots[index] = undefined;
    this.#free.push(index);
    return true;
  }

  clear(): void {
    this.#indexOf.clear();
    this.#slots.length = 0;
    this.#free.length = 0;
  }

  *[Symbol.iterator](): IterableIterator<Stream> {
    for (const stream of this.#slots) if (stream !== undefined) yield stream;
  }
}
