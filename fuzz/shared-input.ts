const STOP = 0;
const RUNS = 1;
const LENGTH = 2;
const NUMBERS = 3;
const NUMBER_BYTES = 4;

/**
 * Memory of a fuzzing thread and of the one that watches it: what is examined now, in case that it hangs or takes all
 * memory, and whether to stop.
 */
export class SharedInput {
  readonly memory: SharedArrayBuffer;
  readonly #numbers: Int32Array;
  readonly #bytes: Buffer;

  constructor(memory: SharedArrayBuffer) {
    this.memory = memory;
    this.#numbers = new Int32Array(memory, 0, NUMBERS);
    this.#bytes = Buffer.from(memory, NUMBERS * NUMBER_BYTES);
  }

  static of(maxLength: number): SharedInput {
    return new SharedInput(new SharedArrayBuffer(NUMBERS * NUMBER_BYTES + maxLength));
  }

  /** Rises with each input. */
  get runs(): number {
    return Atomics.load(this.#numbers, RUNS);
  }

  get input(): Buffer {
    return Buffer.from(this.#bytes.subarray(0, Atomics.load(this.#numbers, LENGTH)));
  }

  begin(input: Buffer): void {
    input.copy(this.#bytes);
    Atomics.store(this.#numbers, LENGTH, input.length);
    Atomics.add(this.#numbers, RUNS, 1);
  }

  get isStopped(): boolean {
    return Atomics.load(this.#numbers, STOP) === 1;
  }

  stop(): void {
    Atomics.store(this.#numbers, STOP, 1);
  }
}
