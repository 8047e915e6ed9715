import type { Random } from "./random.ts";

/** Numbers at which code is likely to decide. */
const EDGES = [0, 1, 2, 3, 4, 7, 8, 15, 16, 31, 32, 63, 64, 127, 128, 252, 255, 256, 512, 1_024, 4_096, 16_384, 32_767];
const MORE_EDGES = [32_768, 65_535, 65_536, 262_144, 0x7fff_ffff, 0x8000_0000, 0xffff_ffff];

export interface MutationOptions {
  readonly random: Random;
  readonly words: readonly Buffer[];
  readonly maxLength: number;
  /** Another input, to take a piece of. */
  readonly other: () => Buffer;
}

type Mutation = (input: Buffer, options: MutationOptions) => Buffer;

const MUTATIONS: readonly Mutation[] = [
  flipBit,
  setByte,
  setByte,
  addToByte,
  setNumber,
  setNumber,
  setLength,
  setLength,
  remove,
  remove,
  repeat,
  putWord,
  putWord,
  putOther,
  swap,
  truncate,
];

/** The input with a few changes. */
export function mutate(input: Buffer, options: MutationOptions): Buffer {
  const { random, maxLength } = options;
  let changed = input;
  for (let left = 1 + random.small(8); left > 0; left--) changed = random.pick(MUTATIONS)(changed, options);
  return changed.subarray(0, maxLength);
}

function copied(input: Buffer): Buffer {
  return input.length === 0 ? Buffer.from([0]) : Buffer.from(input);
}

function flipBit(input: Buffer, { random }: MutationOptions): Buffer {
  const bytes = copied(input);
  const at = random.below(bytes.length);
  bytes[at] = (bytes[at] ?? 0) ^ (1 << random.below(8));
  return bytes;
}

function setByte(input: Buffer, { random }: MutationOptions): Buffer {
  const bytes = copied(input);
  bytes[random.below(bytes.length)] = random.oneIn(2) ? random.below(256) : random.pick(EDGES);
  return bytes;
}

function addToByte(input: Buffer, { random }: MutationOptions): Buffer {
  const bytes = copied(input);
  const at = random.below(bytes.length);
  bytes[at] = (bytes[at] ?? 0) + random.pick([-1, 1, -2, 2, 16, -16]);
  return bytes;
}

/** A number of 1 to 4 bytes, big endian as in all protocols here. */
function setNumber(input: Buffer, { random }: MutationOptions): Buffer {
  const value = random.pick(random.oneIn(3) ? MORE_EDGES : EDGES);
  return writeNumber(input, random, () => value);
}

/** A number that may be the length of what follows it, right or wrong by one. */
function setLength(input: Buffer, { random }: MutationOptions): Buffer {
  return writeNumber(input, random, (left) =>
    Math.max(0, random.pick([left, left, left - 1, left + 1, random.below(left + 1)])),
  );
}

function writeNumber(input: Buffer, random: Random, value: (bytesBehind: number) => number): Buffer {
  const bytes = copied(input);
  const width = Math.min(bytes.length, 1 + random.below(4));
  const at = random.below(bytes.length - width + 1);
  bytes.writeUIntBE(value(bytes.length - at - width) % 256 ** width, at, width);
  return bytes;
}

function remove(input: Buffer, { random }: MutationOptions): Buffer {
  const { from, to } = range(input, random);
  return Buffer.concat([input.subarray(0, from), input.subarray(to)]);
}

/** A piece several times, up to what makes the input as long as it may be. */
function repeat(input: Buffer, { random, maxLength }: MutationOptions): Buffer {
  const { from, to } = range(input, random);
  const piece = input.subarray(from, to);
  const most = Math.max(0, Math.floor((maxLength - input.length) / Math.max(1, piece.length)));
  const times = random.oneIn(20) ? most : Math.min(most, 1 + random.small(8));
  return Buffer.concat([input.subarray(0, to), ...new Array<Buffer>(times).fill(piece), input.subarray(to)]);
}

function putWord(input: Buffer, { random, words }: MutationOptions): Buffer {
  return words.length === 0 ? setByte(input, { random } as MutationOptions) : put(input, random.pick(words), random);
}

function putOther(input: Buffer, { random, other }: MutationOptions): Buffer {
  const source = other();
  const { from, to } = range(source, random);
  return put(input, source.subarray(from, to), random);
}

/** Between two bytes, or over those that are there. */
function put(input: Buffer, piece: Buffer, random: Random): Buffer {
  const at = random.below(input.length + 1);
  const behind = random.oneIn(2) ? at : Math.min(input.length, at + piece.length);
  return Buffer.concat([input.subarray(0, at), piece, input.subarray(behind)]);
}

function swap(input: Buffer, { random }: MutationOptions): Buffer {
  const { from, to } = range(input, random);
  const middle = from + random.below(to - from + 1);
  const parts = [input.subarray(0, from), input.subarray(middle, to), input.subarray(from, middle), input.subarray(to)];
  return Buffer.concat(parts);
}

function truncate(input: Buffer, { random }: MutationOptions): Buffer {
  return random.oneIn(4)
    ? input.subarray(0, random.below(input.length + 1))
    : setByte(input, { random } as MutationOptions);
}

function range(input: Buffer, random: Random): { readonly from: number; readonly to: number } {
  const from = random.below(input.length + 1);
  return { from, to: from + random.small(input.length - from + 1) };
}
