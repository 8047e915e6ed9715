import type { Stream } from "./stream.ts";

/**
 * The open streams by their ids. The table names places and not the streams: those of a Map that has been full of deleted
 * entries would live on in it until the next full collection (`Queue` has the story).
 */
export class StreamsById {
  readonly #placeOf = new Map<number, number>();
  readonly #places: (Stream | undefined)[] = [];
  readonly #free: number[] = [];

  get size(): number {
    return this.#placeOf.size;
  }

  get(id: number): Stream | undefined {
    const place = this.#placeOf.get(id);
    return place === undefined ? undefined : this.#places[place];
  }

  /** No other stream has its id. */
  add(stream: Stream): void {
    const place = this.#free.pop() ?? this.#places.length;
    this.#places[place] = stream;
    this.#placeOf.set(stream.id, place);
  }

  /** False: it was not here. */
  delete(stream: Stream): boolean {
    const place = this.#placeOf.get(stream.id);
    if (place === undefined || this.#places[place] !== stream) return false;
    this.#placeOf.delete(stream.id);
    this.#places[place] = undefined;
    this.#free.push(place);
    return true;
  }

  clear(): void {
    this.#placeOf.clear();
    this.#places.length = 0;
    this.#free.length = 0;
  }

  *[Symbol.iterator](): IterableIterator<Stream> {
    for (const stream of this.#places) if (stream !== undefined) yield stream;
  }
}
