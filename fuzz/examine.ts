import { mostOf, type Target, USUAL_BOUNDS } from "./target.ts";

/** A parser costs more than an input of its length may. */
export class TooExpensive extends Error {
  override readonly name = "TooExpensive";
}

let allocated = 0;

/** From here on this thread counts the bytes of its buffers. Returns a function that ends it. */
export function countAllocations(): () => void {
  const { alloc, allocUnsafe, allocUnsafeSlow, concat } = Buffer;
  Buffer.alloc = (size: number, ...rest: never[]) => alloc(counted(size), ...rest);
  Buffer.allocUnsafe = (size) => allocUnsafe(counted(size));
  Buffer.allocUnsafeSlow = (size) => allocUnsafeSlow(counted(size));
  Buffer.concat = (list, ...rest) => {
    for (const { length } of list) allocated += length;
    return concat(list, ...rest);
  };
  return () => void Object.assign(Buffer, { alloc, allocUnsafe, allocUnsafeSlow, concat });
}

function counted(size: number): number {
  allocated += size;
  return size;
}

/** Runs the target on one input. Throws, or rejects, with what does not hold. */
export function examine(target: Target, input: Buffer): string | Promise<string> {
  allocated = 0;
  const result = target.run(input);
  if (typeof result !== "string") return result.then((word) => checked(target, input, word));
  return checked(target, input, result);
}

function checked(target: Target, input: Buffer, word: string): string {
  const most = mostOf(target.bounds?.allocation ?? USUAL_BOUNDS.allocation, input.length);
  if (allocated <= most) return word;
  throw new TooExpensive(`${allocated} bytes were allocated for an input of ${input.length}, at most ${most} may be`);
}
