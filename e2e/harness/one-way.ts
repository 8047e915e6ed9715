import type { Socket } from "node:net";

/** The faults of one direction of a path. */
export interface Faults {
  delayMs: number;
  dropping: boolean;
}

/** Bytes, or the end of them: FIN, or the reset that an error of the source becomes. */
type Item = { readonly chunk: Buffer | "fin" | "rst"; readonly arrivedMs: number };

/** A path holds what is under way, up to here: 100 ms at 2.5 GB/s. More waits in the sender. */
const QUEUE = 268_435_456;

/** One direction of a relayed connection: a queue whose head leaves when the faults allow it. */
export class OneWay {
  readonly #from: Socket;
  readonly #to: Socket;
  readonly #faults: Faults;
  readonly #count: (bytes: number) => void;
  #queue: Item[] = [];
  #queued = 0;
  #timer: NodeJS.Timeout | undefined;
  /** Bytes that may still pass before the end that `stopAfter` set. */
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
  }

  /** Delivers exactly `bytes` more, if the source has them; `onDelivered` is called when the kernel took the last. */
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
      const { chunk } = this.#queue.shift() as Item;
      if (typeof chunk === "string") {
        this.stop();
        if (chunk === "fin") this.#to.end();
        else this.#to.resetAndDestroy();
        return;
      }
      const piece = chunk.subarray(0, this.#left);
      this.#queued -= chunk.length;
      this.#left -= piece.length;
      this.#count(piece.length);
      if (this.#left === 0) {
        this.stop();
        this.#to.write(piece, this.#onDelivered);
        return;
      }
      this.#to.write(piece);
    }
    this.#holdSource();
  }

  #deliverable(): boolean {
    const item = this.#queue[0];
    if (!item || this.#stopped || this.#timer || this.#faults.dropping) return false;
    if (item.chunk !== "rst" && this.#to.writableNeedDrain) return false;
    const waitMs = item.arrivedMs + this.#faults.delayMs - performance.now();
    if (waitMs <= 0) return true;
    this.#timer = setTimeout(() => {
      this.#timer = undefined;
      this.#pump();
    }, waitMs);
    return false;
  }

  /** Backpressure: reading stops when the other side takes no more, or when the path is full. */
  #holdSource(): void {
    if (this.#stopped || this.#from.destroyed) return;
    const hold = this.#faults.dropping || this.#to.writableNeedDrain || this.#queued > QUEUE;
    if (hold === this.#from.isPaused()) return;
    if (hold) this.#from.pause();
    else this.#from.resume();
  }
}
