import { readdirSync, readFileSync, statSync } from "node:fs";

const OPEN = "/proc/self/fd";

/** How many files this process may have open; `undefined`: no limit, or none that this system tells. */
export function fileLimit(limits: string = readLimits()): number | undefined {
  const soft = /^Max open files +(\d+)/m.exec(limits)?.[1]; // Node has raised it to the hard one
  return soft === undefined ? undefined : Number(soft);
}

/** How many it has open; `undefined`: so many that looking takes one too many, or a system that does not tell. */
export function openFiles(): number | undefined {
  try {
    // Linux says it since 6.2; before, they have to be counted, of which the folder itself is one.
    return statSync(OPEN).size || readdirSync(OPEN).length - 1;
  } catch {
    return undefined;
  }
}

/**
 * A warning if the limit is lower than what the bounds of this process let come in. No event tells of it later: libuv
 * accepts what has no descriptor left with one that it keeps for this, and closes it (hence `FileWatch`).
 */
export function fileLimitWarning(needed: number, what: string, limit = fileLimit()): string | undefined {
  if (limit === undefined || limit >= needed) return undefined;
  return `this process may have ${limit} files open, and ${what} can take ${needed}: then others are cut without a word. Enough for a trial; else raise the limit (ulimit -n ${needed}, or LimitNOFILE=${needed} in its systemd unit), or lower the options`;
}

function readLimits(): string {
  try {
    return readFileSync("/proc/self/limits", "utf8");
  } catch {
    return ""; // no Linux
  }
}
