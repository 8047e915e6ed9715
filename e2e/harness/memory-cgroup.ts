import { mkdirSync, readdirSync, readFileSync, rmdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";

const MOUNT = "/sys/fs/cgroup/memory";
const PREFIX = "culvert-e2e-";

/** A memory control group (version 1) for one process: what a pod with a memory limit is to the kernel. */
export class MemoryCgroup implements Disposable {
  readonly #path: string;

  constructor(limitBytes: number) {
    removeLeftOvers();
    this.#path = join(MOUNT, `${PREFIX}${process.pid}`);
    mkdirSync(this.#path);
    writeFileSync(join(this.#path, "memory.limit_in_bytes"), String(limitBytes));
  }

  /** Where a process writes its id to be a member. */
  get procs(): string {
    return join(this.#path, "cgroup.procs");
  }

  /** Bytes charged to it without page cache, which the kernel takes back when it needs to. */
  usedBytes(): number {
    const cache = /^total_cache (\d+)$/m.exec(this.#read("memory.stat"))?.[1];
    return Number(this.#read("memory.usage_in_bytes")) - Number(cache);
  }

  /** How often the kernel has ended a process of it for want of memory. */
  kills(): number {
    return Number(/^oom_kill (\d+)$/m.exec(this.#read("memory.oom_control"))?.[1] ?? 0);
  }

  #read(file: string): string {
    return readFileSync(join(this.#path, file), "utf8");
  }

  [Symbol.dispose](): void {
    rmdirSync(this.#path);
  }
}

/** Of runs that were killed. */
function removeLeftOvers(): void {
  for (const name of readdirSync(MOUNT)) {
    if (!name.startsWith(PREFIX)) continue;
    try {
      rmdirSync(join(MOUNT, name)); // refused while a process is in it
    } catch {}
  }
}
