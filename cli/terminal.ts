import { constants } from "node:os";
import { basename } from "node:path";
import { deferred } from "../shared/basics/promises.ts";

/** Signals within this time are one Ctrl-C, ms: a terminal sends it to this process, and npm passes its own on. */
const SAME_WISH_MS = 1_000;

export type Signal = "SIGINT" | "SIGTERM";

/**
 * The first SIGINT or SIGTERM, and what one later than a second after it does. Both are listened for until the process
 * exits: without a listener, npm's signal that comes late would end it by that signal instead of with its exit code.
 */
export function untilSignal(onSecond: (signal: Signal) => void): {
  signal: Promise<void>;
  received(): Signal | undefined;
} {
  let received: Signal | undefined;
  let firstAt = 0;
  const { promise: signal, resolve: first } = deferred();
  const onSignal = (name: Signal): void => {
    const now = performance.now();
    if (received === undefined) firstAt = now;
    else if (now - firstAt >= SAME_WISH_MS) onSecond(name);
    received ??= name;
    first();
  };
  process.on("SIGINT", onSignal);
  process.on("SIGTERM", onSignal);
  return {
    signal,
    received: () => received,
  };
}

/** As a shell counts the end of a process by a signal. */
export function exitCodeOf(signal: Signal): number {
  return 128 + constants.signals[signal];
}

/** A path as a shell reads it back, for lines that are made to be pasted. */
export function shellQuoted(path: string): string {
  return /^[A-Za-z0-9_./+-]+$/.test(path) ? path : `'${path.replaceAll("'", "'\\''")}'`;
}

/** How this program was called, for lines that are made to be pasted: installed it is `culvert`, in a clone a path for Node. */
export function ownCommand(script = process.argv[1] ?? ""): string {
  return basename(script).startsWith("main.") ? `node ${shellQuoted(script)}` : "culvert";
}
