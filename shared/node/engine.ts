import { performance } from "node:perf_hooks";
import { getHeapStatistics, setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";

// Differences between the engines: V8 of Node.js, whose flags come without a promise, and JavaScriptCore of Bun.
// docs/node.md lists each behaviour, why it is used, and its test.

/** The global of Bun, in which it has functions of its own; `undefined` on Node.js. */
const bun = (globalThis as { readonly Bun?: { gc(waits: boolean): void } }).Bun;

/** Whether this is Bun, and not Node.js. */
export const isBun = bun !== undefined;

export const RELAY_FLAGS = ["--heap-growing-percent=400", "--no-allocation-site-pretenuring"];

/**
 * Lets V8 collect the young buffers of a relay with cheap scavenges, instead of marking the whole heap for each 30 MB
 * that passes through (docs/decisions/0004), and keeps what connections leave behind out of the old generation (0018).
 * To be called first of all in a process that forwards bytes. Bun takes the flags and does nothing with them.
 */
export function tuneHeapForRelaying(): void {
  for (const flag of RELAY_FLAGS) setFlagsFromString(flag);
}

let collect: (() => void) | undefined = bun && (() => bun.gc(true));

/** Collects all garbage now. The engine knows nothing of memory limits, and collects when it believes it worth it. */
export function collectGarbage(): void {
  if (collect === undefined) {
    setFlagsFromString("--expose-gc");
    collect = runInNewContext("gc") as () => void;
    setFlagsFromString("--no-expose-gc");
  }
  collect();
}

/** Bytes of the heap, either in use or taken from the system, and of the buffers outside it. */
export function heapBytes(which: "used" | "taken"): number {
  if (isBun) return heapBytesOfBun();
  const { used_heap_size: used, total_heap_size: taken, external_memory: buffers } = getHeapStatistics();
  return { used, taken }[which] + buffers;
}

let heapBytesBefore = 0;

/** Bun walks its whole heap for the statistics, and everything waits. */
function heapBytesOfBun(): number {
  try {
    const { heapTotal, external } = process.memoryUsage();
    heapBytesBefore = heapTotal + external;
  } catch {
    // It reads a file as well, and there is no descriptor left.
  }
  return heapBytesBefore;
}

/** Returns a function that tells the share of the time since its last call in which this process has worked. */
export function loadMeter(): () => number {
  return isBun ? cpuMeter() : loopMeter();
}

function loopMeter(): () => number {
  let last = performance.eventLoopUtilization();
  return () => {
    const now = performance.eventLoopUtilization();
    const { utilization } = performance.eventLoopUtilization(now, last);
    last = now;
    return utilization;
  };
}

/** Bun says 0 of its event loop at all times. The CPU time has that of its other threads in it. */
function cpuMeter(): () => number {
  let last = { at: performance.now(), cpu: process.cpuUsage() };
  return () => {
    const { user, system } = process.cpuUsage(last.cpu);
    const share = (user + system) / 1000 / (performance.now() - last.at);
    last = { at: performance.now(), cpu: process.cpuUsage() };
    return share;
  };
}
