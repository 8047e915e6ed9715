import { getHeapStatistics } from "node:v8";
import { collectGarbage } from "../node/v8.ts";
import { type ControlGroups, type GroupMemory, groupMemory } from "./memory-limit.ts";
import type { MemoryPool } from "./memory-pool.ts";

/** How often memory is compared with its limit, ms. At 500 MB/s 50 MB come between two looks. */
const LOOK_MS = 100;
/** Memory is short above this share of the control group's limit: garbage is collected and stalled connections end. */
const SHORT_ABOVE = 0.6;
/**
 * Clusters that hold more than their part get no new connections above this share of the limit, because the kernel ends
 * the process at the whole of it.
 */
const FULL_ABOVE = 0.75;
/** A collection is worth its time when so many bytes have come since the last one. */
const WORTH_COLLECTING = 8 * 1024 * 1024;
/** The loop stands still meanwhile, up to 100 ms where much is alive: it then has so many times as long without one. */
const REST_TIMES = 10;

/**
 * Compares what the kernel charges to this process's control group with what the group may use, whatever is counted here:
 * memory of sockets, garbage, and what malloc has not given back. Beyond 60 % of it garbage is collected at once, and what
 * is still too much is asked of the pool. The kernel would end the process at the whole of it.
 */
export class MemoryWatch {
  readonly #groups: ControlGroups;
  readonly #pool: Pick<MemoryPool, "onProcess">;
  readonly #timer: NodeJS.Timeout;
  /** The least bytes of V8's heap, and of buffers outside it, since the last collection: buffers are freed a little later. */
  #heapAfter = 0;
  #restsUntil = 0;

  constructor(groups: ControlGroups, pool: Pick<MemoryPool, "onProcess">) {
    this.#groups = groups;
    this.#pool = pool;
    this.#timer = setInterval(() => this.#look(), LOOK_MS).unref();
  }

  #look(): void {
    let memory = groupMemory(this.#groups);
    if (bytesAbove(SHORT_ABOVE, memory) > 0 && this.#collect()) memory = groupMemory(this.#groups);
    this.#pool.onProcess(bytesAbove(SHORT_ABOVE, memory), bytesAbove(FULL_ABOVE, memory) > 0);
  }

  /** V8 leaves some 64 MiB of buffers that nobody has any more. False: there are too few, or it was a short time ago. */
  #collect(): boolean {
    const begun = performance.now();
    const heap = heapBytes();
    this.#heapAfter = Math.min(this.#heapAfter, heap);
    if (begun < this.#restsUntil || heap - this.#heapAfter <= WORTH_COLLECTING) return false;
    collectGarbage();
    this.#heapAfter = heapBytes();
    const ended = performance.now();
    this.#restsUntil = ended + REST_TIMES * (ended - begun);
    return true;
  }

  stop(): void {
    clearInterval(this.#timer);
  }
}

/** 0 also where the kernel does not say. */
function bytesAbove(share: number, { used, limit }: GroupMemory): number {
  return Math.max(0, used - share * limit || 0);
}

function heapBytes(): number {
  const { used_heap_size: heap, external_memory: buffers } = getHeapStatistics();
  return heap + buffers;
}
