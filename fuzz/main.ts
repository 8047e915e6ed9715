import { readFileSync } from "node:fs";
import { parseArgs } from "node:util";
import { storeFinding, storeInput } from "./corpus.ts";
import { countAllocations, examine } from "./examine.ts";
import type { Progress } from "./fuzzer.ts";
import { type RunResult, runTarget } from "./run.ts";
import type { Target } from "./target.ts";
import { TARGETS, targetNamed } from "./targets.ts";

const USAGE = `npm run fuzz [-- options]
  --target NAME   this target only; several times for several. Targets: ${TARGETS.map(({ name }) => name).join(", ")}
  --minutes N     how long each of them (default 1)
  --at-once N     targets at the same time (default 2)
  --seed N        repeats a run with the same corpus
  --input FILE    runs --target on this input alone`;

const OPTIONS = {
  target: { type: "string", multiple: true },
  minutes: { type: "string", default: "1" },
  "at-once": { type: "string", default: "2" },
  seed: { type: "string" },
  input: { type: "string" },
  help: { type: "boolean" },
} as const;

/** `npm run fuzz`: exits with 1 when something was found. */
async function main(): Promise<void> {
  const { values } = parseArgs({ options: OPTIONS });
  if (values.help === true) return console.log(USAGE);
  const targets = values.target === undefined ? TARGETS : values.target.map(targetNamed);
  if (values.input !== undefined) return repeat(targets, values.input);
  const forMs = positive("minutes", values.minutes) * 60_000;
  const seed = values.seed === undefined ? Math.floor(Math.random() * 2 ** 31) : positive("seed", values.seed);
  const stop = new AbortController();
  process.once("SIGINT", () => stop.abort());
  process.once("SIGTERM", () => stop.abort());
  const waiting = [...targets];
  const line = async (): Promise<void> => {
    for (let target = waiting.shift(); target !== undefined && !stop.signal.aborted; target = waiting.shift()) {
      const onProgress = (progress: Progress): void => console.log(`${target.name}: ${shown(progress)}`);
      report(target, seed, await runTarget(target, { seed, forMs, signal: stop.signal, onProgress }));
    }
  };
  await Promise.all(Array.from({ length: positive("at-once", values["at-once"]) }, line));
}

function report(target: Target, seed: number, { progress, seconds, found, finding }: RunResult): void {
  const { name } = target;
  for (const input of found) storeInput(name, input);
  const rate = Math.round(progress.executions / seconds);
  console.log(
    `${name}: ${shown(progress)}; ${seconds.toFixed(0)} s (${rate}/s), ${found.length} new in the corpus, seed ${seed}`,
  );
  if (finding === undefined) return;
  process.exitCode = 1;
  const path = storeFinding(name, finding.input);
  console.error(
    `\n${name} fails on these ${finding.input.length} bytes (${path}):\n${finding.input.toString("hex")}\n${finding.stack}\nRepeat it: npm run fuzz -- --target ${name} --input ${path}\n`,
  );
}

function shown({ executions, reached, pool, steps }: Progress): string {
  return `${executions} inputs, ${reached} characters of code reached, ${pool} in the pool, at most ${steps.toFixed(1)} blocks per byte`;
}

async function repeat([target, ...others]: readonly Target[], path: string): Promise<void> {
  if (target === undefined || others.length > 0) throw new Error("--input wants exactly one --target");
  countAllocations();
  console.log(`${target.name}: ${await examine(target, readFileSync(path))}`);
}

function positive(name: string, text: string): number {
  const number = Number(text);
  if (!(number > 0)) throw new Error(`--${name} must be a number above 0, not "${text}"`);
  return number;
}

try {
  await main();
} catch (error) {
  console.error(error);
  process.exitCode = 2;
}
