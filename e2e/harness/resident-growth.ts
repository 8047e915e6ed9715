import assert from "node:assert/strict";
import { collectGarbage, INSPECTED } from "./inspector.ts";
import type { ManagedProcess, ProcessOptions } from "./processes.ts";
import { waitFor } from "./wait.ts";

/**
 * For a server whose growth is measured: the resident set is what it holds. V8's young generation grows with the rate
 * of allocation, by up to 32 MiB, and does not shrink: it stays small. glibc keeps buffers of 64 KiB that were freed,
 * as those that Node reads into: it returns them to the system.
 */
export const GROWTH_MEASURED: ProcessOptions = {
  nodeArgs: [...INSPECTED, "--max-semi-space-size=1"],
  env: { MALLOC_MMAP_THRESHOLD_: "32768" },
};

/** Most that a flood of a peer without a credential may add to the server's resident set. */
const MOST_BYTES = 16 * 1024 * 1024;

/**
 * By how much the resident set of a process grows. Garbage is collected first: when V8 does that by itself depends on
 * its default limits and on the speed of the machine, and not on what the flood makes the server hold. The growth of a
 * calm server with the same honest traffic, a fresh process that warms up, does not count either.
 */
export class ResidentGrowth {
  readonly #process: ManagedProcess;
  readonly #calm: ManagedProcess | undefined;
  readonly #before: number;

  private constructor(process: ManagedProcess, calm: ManagedProcess | undefined) {
    this.#process = process;
    this.#calm = calm;
    this.#before = this.#bytes();
  }

  static async of(process: ManagedProcess, calm?: ManagedProcess): Promise<ResidentGrowth> {
    await collectGarbage(process);
    if (calm !== undefined) await collectGarbage(calm);
    return new ResidentGrowth(process, calm);
  }

  #bytes(): number {
    return this.#process.rssBytes() - (this.#calm?.rssBytes() ?? 0);
  }

  /**
   * Returns by how much it has grown, bytes. A thread of V8's frees buffers, and a busy machine holds it up, so what is
   * too much is looked at again for a while: what the process really holds stays.
   */
  async assertBounded(most = MOST_BYTES): Promise<number> {
    let growth = Number.POSITIVE_INFINITY;
    const isBounded = async (): Promise<boolean> => {
      await collectGarbage(this.#process);
      if (this.#calm !== undefined) await collectGarbage(this.#calm);
      growth = this.#bytes() - this.#before;
      return growth <= most;
    };
    await waitFor(isBounded, { deadlineMs: 10_000, everyMs: 200, what: "memory to be given back" }).catch(() => {});
    assert.ok(growth <= most, `the ${this.#process.name} grew by ${growth} bytes`);
    return growth;
  }
}
