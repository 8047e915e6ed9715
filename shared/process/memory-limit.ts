import { readFileSync } from "node:fs";
import { totalmem } from "node:os";
import { join } from "node:path";

const MIB = 1024 * 1024;
/** What a process takes that carries nothing (Node 20, measured: 85 MB; with 141 MB held by 80 stopped readers 244 MB). */
const IDLE = 80 * MIB;
/** The other half is for what nobody counts: buffers on their way through TLS, slices that keep larger ones, garbage. */
const SHARE = 0.5;
/** In a container that is far too small, what one link may keep at least. */
const LEAST = 16 * MIB;

/** The default of `--memory-limit`, by the limit of this process's control group or by the machine's memory. */
export function defaultMemoryLimit(): number {
  return shareOf(Math.min(totalmem(), cgroupMemoryLimit("/")));
}

/** How much of `bytes` that a process may take may be held for tunnels: whole MiB. */
export function shareOf(bytes: number): number {
  return Math.max(LEAST, Math.floor(((bytes - IDLE) * SHARE) / MIB) * MIB);
}

/**
 * The least memory limit of this process's control group and those above it, in bytes; infinite when none can be read.
 * (`process.constrainedMemory()` looks at one group only, and so misses a systemd slice or a pod around the container.)
 *
 * `/proc/self/cgroup` has a line `id:controllers:path` for each hierarchy; that of version 2 names no controllers. In a
 * container the path may be the host's, while only the container's part is mounted: then the mount's root has the limit.
 */
export function cgroupMemoryLimit(root: string): number {
  let least = Number.POSITIVE_INFINITY;
  for (const line of read(join(root, "proc/self/cgroup")).split("\n")) {
    const [, controllers, path = ""] = /^\d+:([^:]*):(.*)$/.exec(line) ?? [];
    if (controllers === "") least = Math.min(least, limitUpwards(join(root, "sys/fs/cgroup"), path, "memory.max"));
    else if (controllers?.split(",").includes("memory")) {
      least = Math.min(least, limitUpwards(join(root, "sys/fs/cgroup/memory"), path, "memory.limit_in_bytes"));
    }
  }
  return least;
}

function limitUpwards(mount: string, path: string, file: string): number {
  const names = path.split("/").filter((name) => name !== "" && name !== "..");
  let least = Number.POSITIVE_INFINITY;
  for (let depth = names.length; depth >= 0; depth--) {
    const text = read(join(mount, ...names.slice(0, depth), file)).trim();
    // Version 2 says "max" for no limit; version 1 a number beyond any machine, which loses against its memory.
    if (/^[1-9]\d*$/.test(text)) least = Math.min(least, Number(text));
  }
  return least;
}

/** Empty for what is not there, or not for us to see. */
function read(path: string): string {
  try {
    return readFileSync(path, "utf8");
  } catch {
    return "";
  }
}
