import { parentPort, workerData } from "node:worker_threads";
import { Coverage } from "./coverage.ts";
import { countAllocations } from "./examine.ts";
import { Fuzzer, type Progress } from "./fuzzer.ts";
import { SharedInput } from "./shared-input.ts";

/** The data of this thread. */
export interface ThreadData {
  readonly target: string;
  readonly seed: number;
  readonly corpus: readonly Uint8Array[];
  readonly shared: SharedArrayBuffer;
}

/** A message of this thread. */
export type ThreadMessage =
  | { readonly kind: "progress"; readonly progress: Progress }
  | { readonly kind: "finding"; readonly input: Uint8Array; readonly stack: string }
  /** The end: what is worth keeping. */
  | { readonly kind: "done"; readonly progress: Progress; readonly found: readonly Uint8Array[] };

/** Our code, and the library that speaks SOCKS for us. */
const CODE = /\/shared\/(?!.*testing)|\/node_modules\/(?:socks|smart-buffer)\//;
const PROGRESS_MS = 60_000;

const { target: name, seed, corpus, shared: memory } = workerData as ThreadData;
const shared = new SharedInput(memory);
const coverage = new Coverage(CODE);
// Functions that ran before are counted as a whole only, and some targets make their seeds while they are loaded.
const { targetNamed } = await import("./targets.ts");
coverage.take(); // what ran while they were loaded is nobody's input
const inputs = corpus.map((bytes) => Buffer.from(bytes));
const fuzzer = new Fuzzer(targetNamed(name), { seed, shared, coverage, corpus: inputs });
countAllocations();

let finding = await fuzzer.begin();
let said = performance.now();
while (finding === undefined && !shared.isStopped) {
  finding = await fuzzer.batch();
  if (performance.now() - said < PROGRESS_MS) continue;
  said = performance.now();
  say({ kind: "progress", progress: fuzzer.progress });
}
if (finding !== undefined) {
  const { input, error } = finding;
  say({ kind: "finding", input, stack: error.stack ?? String(error) });
}
say({ kind: "done", progress: fuzzer.progress, found: fuzzer.found });
coverage.stop();

function say(message: ThreadMessage): void {
  parentPort?.postMessage(message);
}
