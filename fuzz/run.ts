import { Worker } from "node:worker_threads";
import { storedInputs } from "./corpus.ts";
import type { Progress } from "./fuzzer.ts";
import { SharedInput } from "./shared-input.ts";
import type { Target } from "./target.ts";
import type { ThreadData, ThreadMessage } from "./thread.ts";

export interface RunOptions {
  readonly seed: number;
  readonly forMs: number;
  readonly signal: AbortSignal;
  /** Once a minute. */
  onProgress(progress: Progress): void;
}

/** How a run of one target has ended. */
export interface RunResult {
  readonly progress: Progress;
  readonly seconds: number;
  /** Inputs that reach new code. */
  readonly found: readonly Buffer[];
  readonly finding: { readonly input: Buffer; readonly stack: string } | undefined;
}

/** No input takes a thousandth of it: an expression or a loop that does not end. */
const HANG_MS = 20_000;
const LOOK_MS = 500;
const MAX_HEAP_MB = 512;
const NOTHING: Progress = { executions: 0, reached: 0, pool: 0, steps: 0 };

/** Fuzzes one target in a thread of its own, which may hang or run out of memory: that is a finding, too. */
export function runTarget(target: Target, { seed, forMs, signal, onProgress }: RunOptions): Promise<RunResult> {
  const shared = SharedInput.of(target.maxLength);
  const corpus = storedInputs(target.name).map(({ bytes }) => bytes.subarray(0, target.maxLength));
  const workerData: ThreadData = { target: target.name, seed, corpus, shared: shared.memory };
  const worker = new Worker(new URL("./thread.js", import.meta.url), {
    workerData,
    resourceLimits: { maxOldGenerationSizeMb: MAX_HEAP_MB },
  });
  const begun = performance.now();
  let progress = NOTHING;
  let found: Buffer[] = [];
  let finding: RunResult["finding"];

  let seen = { runs: -1, at: begun };
  const watch = setInterval(() => {
    const now = performance.now();
    if (now - begun >= forMs || signal.aborted) shared.stop();
    if (shared.runs !== seen.runs) seen = { runs: shared.runs, at: now };
    else if (now - seen.at > HANG_MS) end(`the input takes longer than ${HANG_MS / 1_000} s`);
  }, LOOK_MS);

  function end(why: string): void {
    finding ??= { input: shared.input, stack: why };
    void worker.terminate();
  }

  worker.on("message", (message: ThreadMessage) => {
    if (message.kind === "finding") finding = { input: Buffer.from(message.input), stack: message.stack };
    else progress = message.progress;
    if (message.kind === "progress") onProgress(message.progress);
    if (message.kind === "done") found = message.found.map((bytes) => Buffer.from(bytes));
  });
  // Out of memory, or thrown outside of the call that was examined.
  worker.on("error", (error) => end(error.stack ?? String(error)));
  return new Promise((resolve) => {
    worker.on("exit", () => {
      clearInterval(watch);
      resolve({ progress, found, finding, seconds: (performance.now() - begun) / 1_000 });
    });
  });
}
