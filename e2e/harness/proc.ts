import { readdirSync, readFileSync, readlinkSync } from "node:fs";

/** Linux reports CPU time to user space in hundredths of a second, whatever the kernel's own tick (proc(5)). */
const TICKS_PER_SECOND = 100;

/** User and system time a process has used so far, in seconds. */
export function cpuSeconds(pid: number): number {
  const stat = readFileSync(`/proc/${pid}/stat`, "latin1");
  // The name in parentheses may hold spaces: fields are counted from behind it; utime and stime are 14 and 15.
  const fields = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
  return (Number(fields[11]) + Number(fields[12])) / TICKS_PER_SECOND;
}

/** Resident set now, in bytes. */
export function rssBytes(pid: number): number {
  const match = /^VmRSS:\s+(\d+) kB$/m.exec(readFileSync(`/proc/${pid}/status`, "latin1"));
  if (!match) throw new Error(`process ${pid} has no VmRSS`);
  return Number(match[1]) * 1024;
}

export function fdCount(pid: number): number {
  return readdirSync(`/proc/${pid}/fd`).length;
}

/** Whether the process has the IPv4 connection from this local port to that remote one: who has dialled a relay. */
export function hasConnection(pid: number, localPort: number, remotePort: number): boolean {
  const connection = new RegExp(`^ *\\d+: \\w+:${hex(localPort)} \\w+:${hex(remotePort)} (?:\\S+ +){6}(\\d+)`, "m");
  const inode = connection.exec(readFileSync("/proc/net/tcp", "latin1"))?.[1];
  return inode !== undefined && openFiles(pid).includes(`socket:[${inode}]`);
}

/** Whether the process listens at this TCP port. */
export function listensAt(pid: number, port: number): boolean {
  const listening = new RegExp(`^ *\\d+: \\w+:${hex(port)} \\w+:0000 0A (?:\\S+ +){5}(\\d+)`, "gm");
  const tables = ["tcp", "tcp6"].map((table) => readFileSync(`/proc/${pid}/net/${table}`, "latin1"));
  const inodes = tables.flatMap((table) => [...table.matchAll(listening)].map(([, inode]) => `socket:[${inode}]`));
  const files = new Set(openFiles(pid));
  return inodes.some((inode) => files.has(inode));
}

/** The files of a process's descriptors; descriptors that are closed meanwhile are left out. */
function openFiles(pid: number): string[] {
  return readdirSync(`/proc/${pid}/fd`).flatMap((fd) => {
    try {
      return [readlinkSync(`/proc/${pid}/fd/${fd}`)];
    } catch {
      return [];
    }
  });
}

function hex(port: number): string {
  return port.toString(16).toUpperCase().padStart(4, "0");
}
