import { existsSync, mkdirSync, readdirSync, readFileSync, rmdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";

/** Where a version of control groups is mounted, and what its files of the memory controller are called. */
const V1 = {
  mount: "/sys/fs/cgroup/memory",
  limit: "memory.limit_in_bytes",
  used: "memory.usage_in_bytes",
  cache: /^total_cache (\d+)$/m,
  events: "memory.oom_control",
  chargesTcp: false,
};
const V2 = {
  mount: "/sys/fs/cgroup",
  limit: "memory.max",
  used: "memory.current",
  cache: /^file (\d+)$/m,
  events: "memory.events",
  chargesTcp: true,
};
const VERSION = existsSync(V1.mount) ? V1 : V2;
const PREFIX = "culvert-e2e-";

/** A memory control group (version 1 or 2) for one process: what a pod with a memory limit is to the kernel. */
export class MemoryCgroup implements Disposable {
  readonly #path: string;

  constructor(limitBytes: number) {
    removeLeftOvers();
    // The root of version 2 gives its children the controllers that are named here.
    if (VERSION === V2) writeFileSync(join(V2.mount, "cgroup.subtree_control"), "+memory");
    this.#path = join(VERSION.mount, `${PREFIX}${process.pid}`);
    mkdirSync(this.#path);
    writeFileSync(join(this.#path, VERSION.limit), String(limitBytes));
    // A pod has no swap, which would take what is above the limit.
    if (existsSync(join(this.#path, "memory.swap.max"))) writeFileSync(join(this.#path, "memory.swap.max"), "0");
  }

  /** Where a process writes its id to be a member. */
  get procs(): string {
    return join(this.#path, "cgroup.procs");
  }

  /** Bytes in the buffers of TCP sockets are charged to it: version 1 does not do so. */
  get chargesTcp(): boolean {
    return VERSION.chargesTcp;
  }

  /** Bytes charged to it without page cache, which the kernel takes back when it needs to. */
  usedBytes(): number {
    const cache = VERSION.cache.exec(this.#read("memory.stat"))?.[1];
    return Number(this.#read(VERSION.used)) - Number(cache);
  }

  /** How often the kernel has ended a process of it for want of memory. */
  kills(): number {
    return Number(/^oom_kill (\d+)$/m.exec(this.#read(VERSION.events))?.[1] ?? 0);
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
  for (const name of readdirSync(VERSION.mount)) {
    if (!name.startsWith(PREFIX)) continue;
    try {
      rmdirSync(join(VERSION.mount, name)); // refused while a process is in it
    } catch {}
  }
}
