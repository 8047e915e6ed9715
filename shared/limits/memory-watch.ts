import { getHeapStatistics } from "node:v8";
import { collectGarbage } from "../node/v8.ts";
import { type ControlGroups, type GroupMemory, groupMemory } from "./memory-limit.ts";
import type { MemoryPool } from "./memory-pool.ts";

/** How often memory is compared with its limit, ms. At 500 MB/s 50 MB arrive between two checks. */
const CHECK_MS = 100;
/** Memory is short above this share of the control group's limit: garbage is collected and stalled connections end. */
const SHORT_ABOVE = 0.6;
/**
 * Clusters that hold more than their part get no new connections above this share of the limit, because the kernel ends
 * the process at the whole of it.
 */
const FULL_ABOVE = 0.75;
/** A collection is worth its time when so many bytes have been allocated since the last one. */
const WORTH_COLLECTING = 8 * 1024 * 1024;
/**
 * A collection blocks the event loop, up to 100 ms where much is alive; the next comes so many times as long after it.
 */
const PAUSE_TIMES = 10;

/**
 * Compares what the kernel charges to this process's control group with the group's limit. That includes what the pool
 * does not count: socket buffers, garbage, and what malloc has not given back. Above 60 % garbage is collected at
 * once, and the pool reclaims what is still too much. The kernel would end the process at 100 %.
 */
export class MemoryWatch {
  readonly #groups: ControlGroups;
  readonly #pool: Pick<MemoryPool, "onProcess">;
  readonly #timer: NodeJS.Timeout;
  /**
   * The least size of V8's heap and the buffers outside it since the last collection, which frees buffers a little
   * later.
   */
  #heapAfter = 0;
  #nextAllowedAt = 0;

  constructor(groups: ControlGroups, pool: Pick<MemoryPool, "onProcess">) {
    this.#groups = groups;
    this.#pool = pool;
    this.#timer = setInterval(() => this.#check(), CHECK_MS).unref();
  }

  #check(): void {
    let memory = groupMemory(this.#groups);
    if (bytesAbove(SHORT_ABOVE, memory) > 0 && this.#collect()) memory = groupMemory(this.#groups);
    this.#pool.onProcess(bytesAbove(SHORT_ABOVE, memory), bytesAbove(FULL_ABOVE, memory) > 0);
  }

  /** V8 leaves some 64 MiB of unused buffers. Returns false if there are too few, or the last collection was recent. */
  #collect(): boolean {
    const begun = performance.now();
    const heap = heapBytes();
    this.#heapAfter = Math.min(this.#heapAfter, heap);
    if (begun < this.#nextAllowedAt || heap - this.#heapAfter <= WORTH_COLLECTING) return false;
    collectGarbage();
    this.#heapAfter = heapBytes();
    const ended = performance.now();
    this.#nextAllowedAt = ended + PAUSE_TIMES * (ended - begun);
    return true;
  }

  stop(): void {
    clearInterval(this.#timer);
  }
}

/** Also 0 if the kernel does not tell. */
function bytesAbove(share: number, { used, limit }: GroupMemory): number {
  return Math.max(0, used - share * limit || 0);
}

function heapBytes(): number {
  const { used_heap_size: heap, external_memory: buffers } = getHeapStatistics();
  return heap + buffers;
}
