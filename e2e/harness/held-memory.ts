import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";

/** Bytes that this process holds after a collection: its heap, and buffers outside it. */
export function heldMemory(): { readonly heap: number; readonly buffers: number } {
  setFlagsFromString("--expose-gc");
  const collect = runInNewContext("gc") as () => void;
  // Twice: the first collection runs finalizers, whose memory only the second one returns.
  for (let collection = 0; collection < 2; collection++) collect();
  const { heapUsed: heap, arrayBuffers: buffers } = process.memoryUsage();
  return { heap, buffers };
}
