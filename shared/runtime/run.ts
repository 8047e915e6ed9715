import { ConfigError } from "../config/options.ts";
import { tooFewFilesToStart } from "../limits/file-descriptors.ts";
import type { Logger } from "./logger.ts";

/** What a process runs: a server or an agent. */
export interface Closable {
  drain?(): void;
  close(): Promise<void>;
  destroy(reason: Error): void;
}

/** The parts of `process` that are used here; replaced in tests. */
export interface Host {
  on(event: string, listener: (...args: never[]) => void): unknown;
  exit(code: number): void;
  now(): number;
}

export interface RunOptions {
  readonly log: Logger;
  /** Reads files again that the process uses: an operator has sent SIGHUP. */
  readonly reload: () => void;
  /** Tells an operator why the start has failed, one sentence at a time. */
  readonly tellFailure: (sentence: string) => void;
}

/** A terminal's Ctrl-C reaches parent and children, and a supervisor may pass its own on: one wish, two signals. */
const SAME_WISH_MS = 1_000;

const SIGNALS = { SIGTERM: 15, SIGINT: 2 } as const;
type Signal = keyof typeof SIGNALS;

const OWN_PROCESS: Host = {
  on: (event, listener) => process.on(event, listener as (...args: unknown[]) => void),
  exit: (code) => process.exit(code),
  now: () => performance.now(),
};

/**
 * The life of a process (design: "Lifecycle"): start; the first SIGTERM or SIGINT closes and exits 0; a second
 * one, later than a second, destroys; SIGHUP reads files again. An uncaught error is a bug: its stack is logged and the process ends.
 * Resolves when the start is over, well or badly.
 */
export async function run(
  start: () => Promise<Closable>,
  { log, reload, tellFailure }: RunOptions,
  host: Host = OWN_PROCESS,
): Promise<void> {
  let running: Closable | undefined;
  let firstSignalAt: number | undefined;

  const onUncaught = (error: unknown): void => {
    log.fatal({ err: asError(error) }, "uncaught error: the process ends");
    host.exit(1);
  };
  const onSignal = (signal: Signal): void => {
    const now = host.now();
    if (firstSignalAt === undefined) {
      firstSignalAt = now;
      log.info({ signal }, "closing");
      // Without `running` the start is still under way, and goes on to close below.
      if (running !== undefined) void close(running);
    } else if (now - firstSignalAt >= SAME_WISH_MS) {
      log.warn({ signal }, "second signal: ending at once");
      running?.destroy(new Error(`ended by a second ${signal}`));
      host.exit(128 + SIGNALS[signal]);
    }
  };
  const close = async (closable: Closable): Promise<void> => {
    try {
      await closable.close();
      log.info("closed");
      // Whatever timer or socket a library still holds: an idle process has to be gone at once.
      host.exit(0);
    } catch (error) {
      log.error({ err: asError(error) }, "closing failed");
      host.exit(1);
    }
  };

  const onReload = (): void => {
    log.info({ signal: "SIGHUP" }, "reading all files again");
    reload();
  };

  // Before the start, so that a signal or an error in the middle of it is not lost.
  host.on("uncaughtException", onUncaught);
  host.on("unhandledRejection", onUncaught);
  host.on("SIGTERM", () => onSignal("SIGTERM"));
  host.on("SIGINT", () => onSignal("SIGINT"));
  host.on("SIGHUP", onReload);

  try {
    running = await start();
  } catch (error) {
    // A wrong configuration, or limit, is the operator's to mend: sentences, no stack.
    const tooFewFiles = tooFewFilesToStart(error);
    const isWrong = tooFewFiles === undefined && error instanceof ConfigError; // and not a file that could not be opened
    if (tooFewFiles !== undefined) tellFailure(tooFewFiles);
    else if (isWrong) for (const problem of error.problems) tellFailure(problem);
    else log.fatal({ err: asError(error) }, "start failed");
    host.exit(isWrong ? 2 : 1);
    return;
  }
  if (firstSignalAt !== undefined) await close(running);
}

function asError(error: unknown): Error {
  return error instanceof Error ? error : new Error(String(error));
}
