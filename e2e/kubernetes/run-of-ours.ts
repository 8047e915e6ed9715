import { readFileSync } from "node:fs";

/**
 * Is the process still running that put its number into a name, and is it one of ours? Whatever else carries its number
 * was left behind by a run that was killed.
 */
export function isRunOfOurs(pid: string): boolean {
  if (pid === String(process.pid)) return true;
  try {
    return readFileSync(`/proc/${pid}/cmdline`, "utf8").includes("e2e/");
  } catch {
    return false;
  }
}
