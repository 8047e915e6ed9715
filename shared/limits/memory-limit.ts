import { readFileSync } from "node:fs";
import { totalmem } from "node:os";
import { join } from "node:path";
import { collectGarbage, heapBytes } from "../node/engine.ts";

const MIB = 1024 * 1024;
/** Memory of an idle process (Node 20, measured: 85 MB; with 141 MB held by 80 stopped readers 244 MB). */
const IDLE = 80 * MIB;
/**
 * The other half is for what is not counted: buffers on their way through TLS, slices that keep larger ones, garbage.
 */
const SHARE = 0.5;
/** The minimum in a container that is far too small: what one link may keep. */
const LEAST = 16 * MIB;
/** Version 1 shows a larger number, the most pages in bytes, if there is no limit. */
const V1_NO_LIMIT = 2 ** 62;

/** The default of `--memory-limit`, from the limit of this process's control group or the machine's memory. */
export function defaultMemoryLimit(): number {
  return shareOf(Math.min(totalmem(), cgroupMemoryLimit("/")));
}

/** The part of a process's memory, `bytes`, that may be held for tunnels, in whole MiB. */
export function shareOf(bytes: number): number {
  return Math.max(LEAST, Math.floor(((bytes - IDLE) * SHARE) / MIB) * MIB);
}

/**
 * The least memory limit of this process's control group and those above it, in bytes; infinite when none can be read.
 * (`process.constrainedMemory()` looks at one group only, and so misses a systemd slice or a pod around the
 * container.)
 *
 * `/proc/self/cgroup` has a line `id:controllers:path` for each hierarchy; that of version 2 names no controllers. In
 * a container the path may be the host's, while only the container's part is mounted: then the mount's root has the
 * limit.
 */
export function cgroupMemoryLimit(root: string): number {
  return leastLimit(controlGroups(root)?.limited ?? []);
}

/** A control group with a memory limit. */
export interface LimitedGroup {
  readonly limit: number;
  readonly folder: string;
}

/** The control groups that limit the memory of this process. */
export interface ControlGroups {
  readonly version: 1 | 2;
  /** The folder of this process's group, or of the nearest above it that shows its usage. */
  readonly own: string;
  /** The groups with a limit among that one and those above it; at least one. */
  readonly limited: readonly LimitedGroup[];
}

/** The groups of this process, in the version with the tighter limit, or `undefined` if no group has a limit. */
export function controlGroups(root: string): ControlGroups | undefined {
  const found: ControlGroups[] = [];
  for (const line of read(join(root, "proc/self/cgroup")).split("\n")) {
    const [, controllers, path = ""] = /^\d+:([^:]*):(.*)$/.exec(line) ?? [];
    if (controllers === "") found.push(groupsUpwards(join(root, "sys/fs/cgroup"), path, 2));
    else if (controllers?.split(",").includes("memory")) {
      found.push(groupsUpwards(join(root, "sys/fs/cgroup/memory"), path, 1));
    }
  }
  found.sort((one, other) => leastLimit(one.limited) - leastLimit(other.limited));
  return found.find(({ limited }) => limited.length > 0);
}

function leastLimit(groups: readonly LimitedGroup[]): number {
  return Math.min(...groups.map(({ limit }) => limit)); // Infinity of none
}

const FILES = {
  1: { limit: "memory.limit_in_bytes", usage: "memory.usage_in_bytes", cache: /^total_cache (\d+)$/m },
  2: { limit: "memory.max", usage: "memory.current", cache: /^file (\d+)$/m },
} as const;

function groupsUpwards(mount: string, path: string, version: 1 | 2): ControlGroups {
  const names = path.split("/").filter((name) => name !== "" && name !== "..");
  const folders = names.map((_, above) => join(mount, ...names.slice(0, names.length - above)));
  folders.push(mount);
  const limited: LimitedGroup[] = [];
  for (const folder of folders) {
    const text = read(join(folder, FILES[version].limit)).trim();
    // Without a limit version 2 shows "max", version 1 a number beyond any machine.
    if (/^[1-9]\d*$/.test(text) && Number(text) < V1_NO_LIMIT) limited.push({ limit: Number(text), folder });
  }
  const own = folders.find((folder) => read(join(folder, FILES[version].usage)) !== "");
  return { version, own: own ?? mount, limited };
}

/** The usage and the limit of this process's control group, bytes. */
export interface GroupMemory {
  readonly used: number;
  readonly limit: number;
}

/**
 * The usage of this process's group, and as its limit that plus what is free in the tightest group above, which may
 * hold other processes. `used` is NaN if it cannot be read.
 */
export function groupMemory({ own, limited, version }: ControlGroups): GroupMemory {
  const used = usedBytes(own, version);
  const free = limited.map(({ limit, folder }) => {
    const ofGroup = folder === own ? used : usedBytes(folder, version);
    return Math.max(0, limit - (Number.isNaN(ofGroup) ? used : ofGroup));
  });
  return { used, limit: used + Math.min(...free) };
}

/** Bytes that a group uses without the page cache, which the kernel can take back. NaN if it cannot be read. */
function usedBytes(folder: string, version: 1 | 2): number {
  const { usage, cache } = FILES[version];
  const cached = Number(cache.exec(read(join(folder, "memory.stat")))?.[1] ?? 0);
  return Number(read(join(folder, usage)) || Number.NaN) - cached;
}

/** Empty for a file that is missing or may not be read. */
function read(path: string): string {
  try {
    return readFileSync(path, "utf8");
  } catch {
    return "";
  }
}

/** How often memory is compared with its limit, ms. At 500 MB/s 50 MB arrive between two checks. */
const CHECK_MS = 100;
/** Memory is short above this share of the control group's limit: garbage is collected and stalled connections end. */
const SHORT_ABOVE = 0.6;
/**
 * Clusters that hold more than their part get no new connections above this share of the limit, because the kernel ends
 * the process at the whole of it.
 */
const FULL_ABOVE = 0.75;
/** A collection is worth its time when this many bytes have been allocated since the last one. */
const WORTH_COLLECTING = 8 * 1024 * 1024;
/**
 * A collection blocks the event loop, up to 100 ms where much is alive; before the next one, the process waits this
 * many times as long.
 */
const PAUSE_TIMES = 10;

/** Receives how short of memory the process is. */
interface ProcessMemory {
  /** `excess`: bytes to reclaim. `isFull`: nothing more may be taken. */
  onProcess(excess: number, isFull: boolean): void;
}

/**
 * Compares the memory that the kernel charges to this process's control group with the group's limit. The charge
 * includes memory that the pool does not count: socket buffers, garbage, and pages that malloc has not given back.
 * Above 60 % garbage is collected at once, and the pool reclaims memory if there is still too much. The kernel would
 * end the process at 100 %.
 */
export class MemoryWatch {
  readonly #groups: ControlGroups;
  readonly #pool: ProcessMemory;
  readonly #timer: NodeJS.Timeout;
  /**
   * The least size of V8's heap and the buffers outside it since the last collection, which frees buffers a little
   * later.
   */
  #heapAfter = 0;
  #nextAllowedAt = 0;

  constructor(groups: ControlGroups, pool: ProcessMemory) {
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
    const heap = heapBytes("used");
    this.#heapAfter = Math.min(this.#heapAfter, heap);
    if (begun < this.#nextAllowedAt || heap - this.#heapAfter <= WORTH_COLLECTING) return false;
    collectGarbage();
    this.#heapAfter = heapBytes("used");
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
