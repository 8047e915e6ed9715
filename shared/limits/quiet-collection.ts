import { collectGarbage, heapBytes, loadMeter } from "../node/engine.ts";

/**
 * Interval of checks whether the process is quiet, ms. A collection without open connections costs V8 the optimised
 * code of the next ones, so the pause between two scrapes is no quiet time.
 */
const CHECK_MS = 30_000;
/** The process is quiet if its event loop has worked at most this share of the time since the last check. */
const QUIET_BELOW = 0.01;
/**
 * A collection is worth its pause when what V8 has taken from the system has grown by this many bytes since the last
 * one.
 */
const WORTH_COLLECTING = 16 * 1024 * 1024;

/**
 * The first collection frees buffers; V8 makes the young generation smaller at one before which little was allocated.
 */
const COLLECTIONS = 2;

/** The process's facts, which a test can replace. */
interface QuietProcess {
  /** The share of the time since the call before in which the event loop has worked. */
  load(): number;
  /** Bytes of V8's heap, also where nothing is in its pages, and of the buffers outside it. */
  heap(): number;
  collect(): void;
}

/**
 * Collects garbage when the process has become quiet, after its start and after each burst. V8 collects when memory is
 * allocated: without traffic it keeps the buffers of streams that were closed long ago (docs/decisions/0040). Returns a
 * function that ends it.
 */
export function collectWhenQuiet(
  process: QuietProcess = { load: loadMeter(), heap: () => heapBytes("taken"), collect: collectGarbage },
): () => void {
  /** The least size since the last collection. */
  let after = 0;
  let due = 0;
  const timer = setInterval(() => {
    const load = process.load();
    const heap = process.heap();
    after = Math.min(after, heap);
    if (heap - after > WORTH_COLLECTING) due = COLLECTIONS;
    if (load > QUIET_BELOW || due === 0) return;
    due -= 1;
    process.collect();
    after = process.heap();
  }, CHECK_MS).unref();
  return () => clearInterval(timer);
}
