import type { Socket } from "node:net";

/** What is wrong with one direction of a path. */
export interface Faults {
  delayMs: number;
  bytesPerSecond: number;
  /** Largest piece written at once; 0: as it came. */
  maxPiece: number;
  dropping: boolean;
}

/** Bytes, or the end of them: FIN, or the reset that an error of the source becomes. */
type Item = { chunk: Buffer | "fin" | "rst"; readonly arrivedMs: number };

/** A throttled path holds this much (plus what is under way); more waits in the sender. */
const THROTTLED_QUEUE = 65_536;
/** A delayed path holds what is under way, up to here: 100 ms at 2.5 GB/s. */
const DELAYED_QUEUE = 268_435_456;
/** A throttled path delivers a portion this often. */
const PORTION_MS = 10;

/** One direction of a relayed connection: a queue whose head leaves when the faults allow it. */
export class OneWay {
  readonly #from: Socket;
  readonly #to: Socket;
  readonly #faults: Faults;
  readonly #count: (bytes: number) => void;
  #queue: Item[] = [];
  #queued = 0;
  #timer: NodeJS.Timeout | undefined;
  #immediate: NodeJS.Immediate | undefined;
  /** When a throttled path is free again. */
  #freeMs = 0;
  /** What may still pass before the end that `stopAfter` set. */
  #left = Number.POSITIVE_INFINITY;
  #onDelivered: () => void = () => {};
  #stopped = false;

  constructor(from: Socket, to: Socket, faults: Faults, count: (bytes: number) => void) {
    this.#from = from;
    this.#to = to;
    this.#faults = faults;
    this.#count = count;
    from.on("data", (chunk: Buffer) => this.#add(chunk));
    from.on("end", () => this.#add("fin"));
    from.on("error", () => this.#add("rst"));
    to.on("drain", () => this.#pump());
    this.faultsChanged();
  }

  faultsChanged(): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    this.#pump();
  }

  /** Delivers no more. */
  stop(): void {
    this.#stopped = true;
    this.#queue = [];
    clearTimeout(this.#timer);
    clearImmediate(this.#immediate);
  }

  /**
   * Delivers exactly so many bytes more, if the source has them; `onDelivered` is called when the kernel took the last.
   */
  stopAfter(bytes: number, onDelivered: () => void): void {
    this.#left = bytes;
    this.#onDelivered = onDelivered;
    if (bytes > 0) return;
    this.stop();
    onDelivered();
  }

  #add(chunk: Item["chunk"]): void {
    if (this.#stopped) return;
    this.#queue.push({ chunk, arrivedMs: performance.now() });
    if (typeof chunk !== "string") this.#queued += chunk.length;
    this.#pump();
  }

  #pump(): void {
    while (this.#deliverable()) {
      const item = this.#queue[0] as Item;
      if (typeof item.chunk === "string") {
        this.stop();
        if (item.chunk === "fin") this.#to.end();
        else this.#to.resetAndDestroy();
        return;
      }
      const piece = this.#cutPiece(item as Item & { chunk: Buffer });
      this.#queued -= piece.length;
      this.#left -= piece.length;
      this.#count(piece.length);
      if (this.#left === 0) {
        this.stop();
        this.#to.write(piece, this.#onDelivered);
        return;
      }
      this.#to.write(piece);
      if (this.#faults.maxPiece > 0) {
        // The next piece in a later turn, so that the kernel does not join them.
        this.#immediate = setImmediate(() => {
          this.#immediate = undefined;
          this.#pump();
        });
        break;
      }
    }
    this.#holdSource();
  }

  #deliverable(): boolean {
    const item = this.#queue[0];
    if (!item || this.#stopped || this.#timer || this.#immediate || this.#faults.dropping) return false;
    if (item.chunk !== "rst" && this.#to.writableNeedDrain) return false;
    const now = performance.now();
    const dueMs = Math.max(item.arrivedMs + this.#faults.delayMs, this.#throttled ? this.#freeMs : 0);
    if (dueMs <= now) return true;
    this.#timer = setTimeout(() => {
      this.#timer = undefined;
      this.#pump();
    }, dueMs - now);
    return false;
  }

  get #throttled(): boolean {
    return this.#faults.bytesPerSecond !== Number.POSITIVE_INFINITY;
  }

  /** The part of the head that may leave now; takes it off the queue. */
  #cutPiece(item: { chunk: Buffer }): Buffer {
    const { maxPiece, bytesPerSecond } = this.#faults;
    let length = Math.min(item.chunk.length, this.#left);
    if (maxPiece > 0) length = Math.min(length, 1 + Math.floor(Math.random() * maxPiece));
    if (this.#throttled) {
      length = Math.min(length, Math.max(1, Math.floor((bytesPerSecond * PORTION_MS) / 1000)));
      const now = performance.now();
      // Timers are late by up to a millisecond or more: what was missed meanwhile is made up for, at most one portion.
      this.#freeMs = Math.max(this.#freeMs, now - PORTION_MS) + (length * 1000) / bytesPerSecond;
    }
    if (length === item.chunk.length) {
      this.#queue.shift();
      return item.chunk;
    }
    const piece = item.chunk.subarray(0, length);
    item.chunk = item.chunk.subarray(length);
    return piece;
  }

  /** Backpressure: reading stops when the other side takes no more, or when the path is full. */
  #holdSource(): void {
    if (this.#stopped || this.#from.destroyed) return;
    const { dropping, delayMs, bytesPerSecond, maxPiece } = this.#faults;
    const underWay = this.#throttled ? (bytesPerSecond * delayMs) / 1000 : DELAYED_QUEUE;
    const room = maxPiece > 0 && delayMs === 0 ? THROTTLED_QUEUE : THROTTLED_QUEUE + underWay;
    const hold = dropping || this.#to.writableNeedDrain || this.#queued > room;
    if (hold === this.#from.isPaused()) return;
    if (hold) this.#from.pause();
    else this.#from.resume();
  }
}
