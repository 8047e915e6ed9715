import { basename } from "node:path";
import { deferred } from "../../shared/basics/promises.ts";
import { shellQuoted } from "../../shared/basics/text.ts";
import { exitCodeOf, SAME_REQUEST_MS, type StopSignal } from "../../shared/runtime/run.ts";

/**
 * Waits for the first SIGINT or SIGTERM. Another one more than a second later ends the process after `beforeExit`. The
 * listeners stay until the process exits: without them, a late signal from npm would end it by that signal instead of
 * with its exit code.
 */
export function untilSignal(beforeExit: () => void = () => {}): {
  signal: Promise<void>;
  received(): StopSignal | undefined;
} {
  let received: StopSignal | undefined;
  let firstAt = 0;
  const { promise: signal, resolve: first } = deferred();
  const onSignal = (name: StopSignal): void => {
    const now = performance.now();
    if (received === undefined) firstAt = now;
    else if (now - firstAt >= SAME_REQUEST_MS) {
      beforeExit();
      process.exit(exitCodeOf(name));
    }
    received ??= name;
    first();
  };
  process.on("SIGINT", onSignal);
  process.on("SIGTERM", onSignal);
  return { signal, received: () => received };
}

/**
 * The command by which this program was started, for commands to paste: `culvert` if installed, `node PATH` in a clone.
 */
export function ownCommand(script = process.argv[1] ?? ""): string {
  return basename(script).startsWith("main.") ? `node ${shellQuoted(script)}` : "culvert";
}
