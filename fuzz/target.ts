import assert from "node:assert/strict";
import { Random } from "./random.ts";

/** One parser, and what must hold for it whatever bytes it is given. */
export interface Target {
  readonly name: string;
  /** Inputs are no longer than this, bytes. */
  readonly maxLength: number;
  /** Well-formed inputs, from which the search begins. The corpus has what was found by it. */
  readonly seeds: readonly Buffer[];
  /** Words that are put into an input whole: names, magic numbers, separators. */
  readonly words: readonly (string | Buffer)[];
  /** Where the parser costs more than the usual bounds by design. */
  readonly bounds?: Partial<Bounds>;
  /**
   * Gives the input to the parser. Throws where something does not hold; else the answer tells one kind of result from
   * another, in few words: an input with a new one is kept as a beginning for others. Depends on the input alone.
   */
  run(input: Buffer): string | Promise<string>;
}

/** The allowed cost of an input: a fixed part, and an amount for each of its bytes. */
export interface Bounds {
  /** Bytes of the buffers that are allocated. */
  readonly allocation: Cost;
  /** Blocks of our code that are entered: time without a clock. */
  readonly steps: Cost;
}

export interface Cost {
  readonly fixed: number;
  readonly perByte: number;
}

export const USUAL_BOUNDS: Bounds = {
  allocation: { fixed: 64 * 1024, perByte: 64 },
  steps: { fixed: 10_000, perByte: 100 },
};

/** The most that an input of this number of bytes may cost. */
export function mostOf({ fixed, perByte }: Cost, bytes: number): number {
  return fixed + perByte * bytes;
}

const LONG = 512;

/** The same bytes as they may arrive: in one piece, and in smaller ones, or each alone, as follows from the bytes. */
export function splits(input: Buffer): [Buffer[], Buffer[]] {
  if (input.length === 0) return [[input], [input]];
  const random = new Random(input.readUIntBE(0, Math.min(4, input.length)) + input.length);
  const most = random.pick(input.length < LONG ? [1, 4, 64] : [64, 1_024]);
  return [[input], cut(input, () => 1 + random.below(most))];
}

/** In pieces that are as long as `next` says each time. */
export function cut(input: Buffer, next: () => number): Buffer[] {
  const pieces: Buffer[] = [];
  for (let at = 0; at < input.length; ) {
    const end = Math.min(input.length, at + Math.max(1, next()));
    pieces.push(input.subarray(at, end));
    at = end;
  }
  return pieces;
}

/** The value of `work`, or the error that it has thrown, which must be of that class and no subclass. */
export function attempt<T, E extends Error>(
  work: () => T,
  // biome-ignore lint/suspicious/noExplicitAny: the parameters of a constructor that nobody calls here.
  Expected: abstract new (...parameters: any) => E,
): { readonly value: T; readonly error?: undefined } | { readonly value?: undefined; readonly error: E } {
  try {
    return { value: work() };
  } catch (error) {
    if (error instanceof Error && error.constructor === Expected) return { error: error as E };
    throw error;
  }
}

/** One line that a log and a terminal show as it is. */
export function assertPrintable(text: string, most: number): void {
  assert.match(text, /^[\x20-\x7e]*$/, "one line of printable characters");
  assert.ok(text.length <= most, `${text.length} characters, at most ${most} are expected`);
}
