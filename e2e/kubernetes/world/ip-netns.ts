import { existsSync, mkdirSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { run } from "./run.ts";

/** Where ip-netns(8) has the namespaces, and where it looks for files of their own. */
const [NAMESPACES, SETTINGS] = ["/run/netns", "/etc/netns"];

/** Removes what killed runs left: the namespaces' names carry the process that made them, behind `prefix`. */
export async function sweepStale(prefix: string, isRunOfOurs: (pid: string) => boolean): Promise<void> {
  const names = new Set([NAMESPACES, SETTINGS].flatMap((folder) => (existsSync(folder) ? readdirSync(folder) : [])));
  const pidOf = (name: string) => new RegExp(`^${prefix}(\\d+)-`).exec(name)?.[1];
  const stale = (pid: string | undefined) => pid !== undefined && !isRunOfOurs(pid);
  await removeAll([...names].filter((name) => stale(pidOf(name))));
}

/** Each of them, also when another one cannot be removed. */
export async function removeAll(names: readonly string[]): Promise<void> {
  const failures = (await Promise.allSettled(names.map(remove))).filter((result) => result.status === "rejected");
  if (failures.length > 0) throw new Error(failures.map(({ reason }) => (reason as Error).message).join("; "));
}

/** With all programs that still run inside; nobody else's can. */
async function remove(name: string): Promise<void> {
  rmSync(settingsOf(name), { recursive: true, force: true });
  if (!existsSync(`${NAMESPACES}/${name}`)) return;
  // A name that is no namespace yet or any more has no programs, and can be deleted.
  const pids = await ip("netns", "pids", name).catch(() => "");
  for (const pid of pids.split("\n").filter(Boolean)) killQuietly(Number(pid));
  await ip("netns", "delete", name);
}

function killQuietly(pid: number): void {
  try {
    process.kill(pid, "SIGKILL");
  } catch {
    // It ended meanwhile.
  }
}

/**
 * Writes the files that programs inside find in /etc (ip-netns(8)): these lines of hosts, and no name server to wait
 * for.
 */
export function writeSettings(name: string, hosts: readonly string[]): void {
  mkdirSync(settingsOf(name), { recursive: true });
  writeFileSync(`${settingsOf(name)}/hosts`, `${hosts.join("\n")}\n`);
  writeFileSync(`${settingsOf(name)}/nsswitch.conf`, "hosts: files\n");
}

function settingsOf(name: string): string {
  return `${SETTINGS}/${name}`;
}

export async function ip(...args: string[]): Promise<string> {
  const { code, stdout, stderr } = await run(["ip", ...args], { env: { PATH: process.env["PATH"] ?? "" } });
  if (code !== 0) throw new Error(`ip ${args.join(" ")}: ${stderr.trim()}`);
  return stdout;
}
