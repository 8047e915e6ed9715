import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";

// V8 flags, which Node.js takes without a promise. docs/node.md lists each one, why it is used, and its test.

export const RELAY_FLAGS = ["--heap-growing-percent=400", "--no-allocation-site-pretenuring"];

/**
 * Lets V8 collect the young buffers of a relay with cheap scavenges, instead of marking the whole heap for each 30 MB
 * that passes through (docs/decisions/0004), and keeps what connections leave behind out of the old generation (0018).
 * To be called first of all in a process that forwards bytes.
 */
export function tuneHeapForRelaying(): void {
  for (const flag of RELAY_FLAGS) setFlagsFromString(flag);
}

let collect: (() => void) | undefined;

/** Collects all garbage now. V8 knows nothing of memory limits, and collects when it believes that it is worth it. */
export function collectGarbage(): void {
  if (collect === undefined) {
    setFlagsFromString("--expose-gc");
    collect = runInNewContext("gc") as () => void;
    setFlagsFromString("--no-expose-gc");
  }
  collect();
}
