import { readFileSync } from "node:fs";

/** How many files this process may have open; `undefined`: no limit, or none that this system tells. */
export function fileLimit(limits: string = readLimits()): number | undefined {
  const soft = /^Max open files +(\d+)/m.exec(limits)?.[1]; // Node has raised it to the hard one
  return soft === undefined ? undefined : Number(soft);
}

/**
 * A warning if the limit is lower than what the bounds of this process let come in. Nothing tells of it later: libuv
 * accepts what has no descriptor left with one that it keeps for this, and closes it, without an error or an event.
 */
export function fileLimitWarning(needed: number, options: string, limit = fileLimit()): string | undefined {
  if (limit === undefined || limit >= needed) return undefined;
  return `this process may have ${limit} files open, and ${options} let connections take ${needed}: beyond its limit they would be closed without a word. Raise it (ulimit -n, LimitNOFILE=), or lower the options`;
}

function readLimits(): string {
  try {
    return readFileSync("/proc/self/limits", "utf8");
  } catch {
    return ""; // no Linux
  }
}
