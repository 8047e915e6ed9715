import { getHeapStatistics, setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import type { MemoryPool } from "../memory/memory-pool.ts";
import { type LimitedGroup, usedBytes } from "./memory-limit.ts";

/** How often it is looked, ms: at 500 MB/s that is 50 MB later. */
const LOOK_MS = 100;
/** Above this share of the limit of the control group memory is short: garbage is collected and stalled connections end … */
const SHORT_ABOVE = 0.6;
/** … when so many bytes have come since the last time; a collection takes some 10 ms … */
const WORTH_COLLECTING = 8 * 1024 * 1024;
/** … and above this those that hold more than their part get nothing new: the kernel is not far from ending the process. */
const FULL_ABOVE = 0.75;

/**
 * Compares what the kernel charges to this process's control group with the group's limit, whatever is counted here:
 * memory of sockets, garbage, and what malloc has not given back. Beyond 60 % of the limit garbage is collected
 * at once, and what is still too much is asked of the pool. The kernel would end the process at the whole of it.
 */
export class MemoryWatch {
  readonly #group: LimitedGroup;
  readonly #pool: Pick<MemoryPool, "onProcess">;
  readonly #timer: NodeJS.Timeout;
  /** Bytes of V8's heap, and of buffers outside it, behind the last collection. */
  #heapAfter = 0;

  constructor(group: LimitedGroup, pool: Pick<MemoryPool, "onProcess">) {
    this.#group = group;
    this.#pool = pool;
    this.#timer = setInterval(() => this.#look(), LOOK_MS).unref();
  }

  /** V8 leaves some 64 MiB of buffers that nobody has any more. What is still too much without them is no garbage. */
  #look(): void {
    if (this.#bytesAbove(SHORT_ABOVE) > 0 && heapBytes() - this.#heapAfter > WORTH_COLLECTING) {
      collectGarbage();
      this.#heapAfter = heapBytes();
    }
    this.#pool.onProcess(this.#bytesAbove(SHORT_ABOVE), this.#bytesAbove(FULL_ABOVE) > 0);
  }

  /** 0 also where the kernel does not say. */
  #bytesAbove(share: number): number {
    return Math.max(0, usedBytes(this.#group) - share * this.#group.limit || 0);
  }

  stop(): void {
    clearInterval(this.#timer);
  }
}

function heapBytes(): number {
  const { used_heap_size: heap, external_memory: buffers } = getHeapStatistics();
  return heap + buffers;
}

let collect: (() => void) | undefined;

/** What V8 does by itself only when it believes that it is worth it: of memory limits it knows nothing. */
function collectGarbage(): void {
  if (collect === undefined) {
    setFlagsFromString("--expose-gc");
    collect = runInNewContext("gc") as () => void;
    setFlagsFromString("--no-expose-gc");
  }
  collect();
}
