/** As much as is tried for one input. */
const MAX_TRIALS = 400;

/** A shorter input that still is what `isStill` wants, by leaving pieces out. */
export async function shrink(input: Buffer, isStill: (shorter: Buffer) => Promise<boolean>): Promise<Buffer> {
  let least = input;
  let trials = 0;
  for (let size = least.length >> 1; size >= 1; size >>= 1) {
    for (let at = 0; at < least.length && trials < MAX_TRIALS; trials++) {
      const shorter = Buffer.concat([least.subarray(0, at), least.subarray(at + size)]);
      if (await isStill(shorter)) least = shorter;
      else at += size;
    }
  }
  return least;
}
