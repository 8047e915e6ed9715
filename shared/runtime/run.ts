import { constants } from "node:os";
import { deferred } from "../basics/promises.ts";
import { ConfigError } from "../config/options.ts";
import { tooFewFilesToStart } from "../limits/descriptor-shortage.ts";
import type { Logger } from "./logger.ts";

/** The program that a process runs: a server, an agent or a router. */
export interface Closable {
  close(): Promise<void>;
  destroy(reason: Error): void;
}

/** Starts it. If that fails it is destroyed, and this rejects. */
export async function started<T extends Closable & { start(): Promise<void> }>(it: T): Promise<T> {
  try {
    await it.start();
    return it;
  } catch (error) {
    it.destroy(error as Error);
    throw error;
  }
}

/** The parts of `process` that are used here. Tests replace them. */
export interface Host {
  on(event: string, listener: (...args: never[]) => void): unknown;
  exit(code: number): void;
  now(): number;
}

export interface RunOptions {
  readonly log: Logger;
  /** Reads all files of the configuration again, after SIGHUP. */
  readonly reload: () => void;
  /** Shows an operator why the start has failed, one sentence at a time. */
  readonly reportFailure: (sentence: string) => void;
}

/**
 * Ctrl-C of a terminal reaches parent and children, and a supervisor may pass its own signal on. Both are one request,
 * ms.
 */
const SAME_REQUEST_MS = 1_000;

/** Signals that ask a process to end. */
type StopSignal = "SIGTERM" | "SIGINT";

/** The exit code with which a shell reports the end of a process by a signal. */
export function exitCodeOf(signal: StopSignal): number {
  return 128 + constants.signals[signal];
}

const OWN_PROCESS: Host = {
  on: (event, listener) => process.on(event, listener as (...args: unknown[]) => void),
  exit: (code) => process.exit(code),
  now: () => performance.now(),
};

/**
 * Runs a process until it ends. The first SIGTERM or SIGINT closes it, with exit code 0; another one more than a second
 * later destroys it; SIGHUP reads files again. An uncaught error is a bug: its stack is logged and the process ends.
 * Resolves when the start has succeeded or failed.
 */
export async function run(
  start: () => Promise<Closable>,
  { log, reload, reportFailure }: RunOptions,
  host: Host = OWN_PROCESS,
): Promise<void> {
  let running: Closable | undefined;
  let firstSignalAt: number | undefined;

  const onUncaught = (error: unknown): void => {
    log.fatal({ err: asError(error) }, "uncaught error: the process ends");
    host.exit(1);
  };
  const onSignal = (signal: StopSignal): void => {
    const now = host.now();
    if (firstSignalAt === undefined) {
      firstSignalAt = now;
      log.info({ signal }, "closing");
      // Without `running` the process is still starting, and is closed below.
      if (running !== undefined) void close(running);
    } else if (now - firstSignalAt >= SAME_REQUEST_MS) {
      log.warn({ signal }, "second signal: ending at once");
      running?.destroy(new Error(`ended by a second ${signal}`));
      host.exit(exitCodeOf(signal));
    }
  };
  const close = async (closable: Closable): Promise<void> => {
    try {
      await closable.close();
      log.info("closed");
      // A timer or socket of a library must not keep the process alive.
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

  // Before the start, so that no signal and no error during it is lost.
  host.on("uncaughtException", onUncaught);
  host.on("unhandledRejection", onUncaught);
  host.on("SIGTERM", () => onSignal("SIGTERM"));
  host.on("SIGINT", () => onSignal("SIGINT"));
  host.on("SIGHUP", onReload);

  try {
    running = await start();
  } catch (error) {
    // An operator can change a wrong configuration or limit: sentences without a stack tell how.
    const tooFewFiles = tooFewFilesToStart(error);
    const isWrong = tooFewFiles === undefined && error instanceof ConfigError;
    if (tooFewFiles !== undefined) reportFailure(tooFewFiles);
    else if (isWrong) for (const problem of error.problems) reportFailure(problem);
    else log.fatal({ err: asError(error) }, "start failed");
    host.exit(isWrong ? 2 : 1);
    return;
  }
  if (firstSignalAt !== undefined) await close(running);
}

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

function asError(error: unknown): Error {
  return error instanceof Error ? error : new Error(String(error));
}
