import { waitFor } from "../harness/wait.ts";
import { Changes } from "./changes.ts";
import { cutCarriers } from "./cuts.ts";
import { collectWhile, type Figures, figuresOf, SAMPLED_MS, unrest } from "./figures.ts";
import { KINDS } from "./kinds.ts";
import { pause } from "./pause.ts";
import { Progress } from "./progress.ts";
import { phasesOf } from "./settings.ts";
import { Site } from "./site.ts";
import { Tally } from "./tally.ts";
import { startTargets } from "./targets.ts";
import { Traffic } from "./traffic.ts";
import { growthOf, lossesOf } from "./verdict.ts";

interface SoakOptions {
  readonly minutes: number;
  readonly seed: number;
  readonly logs: string | undefined;
  /** Takes lines for people. */
  readonly say: (line: string) => void;
  /** Ends the run early, cleanly and with a verdict. */
  readonly signal: AbortSignal;
}

const CHANGE_EVERY_MS = 20_000;
/** In the warm-up each kind of change is to happen, so that what it costs once is in the figures. */
const WARMING_CHANGE_EVERY_MS = 3_000;
const SHOWN_ALARMS = 5;

/** A calm: what the processes hold, and which gauges were not where they must be. */
interface Calm {
  readonly figures: readonly Figures[];
  readonly restless: readonly string[];
}

/** Runs the whole soak; what failed, in sentences. */
export async function soak({ minutes, seed, logs, say, signal }: SoakOptions): Promise<string[]> {
  const phases = phasesOf(minutes);
  const tally = new Tally((text) => say(`${new Date().toISOString()} lost: ${text}`));
  await using site = await Site.start(logs);
  await using targets = await startTargets(tally);
  using traffic = await Traffic.open(site, targets, tally, seed);
  const changes = new Changes(site, targets, tally);
  using progress = new Progress(site, tally, say);
  const early = endedEarly(site, signal);

  /** Traffic, cuts and changes for this time; then nothing is under way any more. */
  const load = async (name: string, ms: number, changeEveryMs: number): Promise<void> => {
    progress.phase = name;
    const stop = new AbortController();
    const besides = [
      cutCarriers(site, stop.signal),
      changes.run(changeEveryMs, stop.signal),
      collectWhile(site, stop.signal),
    ];
    traffic.start();
    await pause(ms, early);
    stop.abort();
    await Promise.all([...besides, traffic.stop()]);
  };
  const calm = async (when: string): Promise<Calm | undefined> => {
    progress.phase = `calm ${when}`;
    if (site.ended.length > 0) return undefined;
    const restless = await unrest(site, traffic.standing);
    if (restless.length === 0) await pause(phases.calmMs - SAMPLED_MS, early);
    try {
      const figures = await figuresOf(site.processes);
      progress.sayFigures(when, figures);
      return { figures, restless };
    } catch (error) {
      return { figures: [], restless: [...restless, `There are no figures: ${(error as Error).message}`] };
    }
  };

  await load("warm-up", phases.warmUpMs, WARMING_CHANGE_EVERY_MS);
  const before = early.aborted ? undefined : await calm("after the warm-up");
  if (before?.restless.length === 0 && !early.aborted) await load("load", phases.loadMs, CHANGE_EVERY_MS);
  const after = await calm("at the end");
  await traffic.finish();
  const left = site.ended.length > 0 ? [] : await unrest(site, 0);
  await waitFor(() => targets.open === 0, { deadlineMs: 10_000 }).catch(() => {}); // otherwise it is in the verdict
  progress.phase = "over";
  progress.sayProgress();
  return [
    ...site.ended.map((name) => `The ${name} has ended.`),
    ...lossesOf(tally, [...Object.keys(KINDS), "interactive"]),
    ...comparison(before, after),
    ...left,
    ...(targets.open === 0 ? [] : [`${targets.open} connections to targets are still open.`]),
    ...(site.cuts === 0 ? ["No carrier was cut."] : []),
    ...site.processes.flatMap(({ name, alarms }) =>
      alarms.slice(0, SHOWN_ALARMS).map((line) => `The ${name} logged: ${line}`),
    ),
  ];
}

/** Aborted when somebody wants the run to end, or when there is nothing more to be learned from it. */
function endedEarly({ processes }: Site, signal: AbortSignal): AbortSignal {
  const died = new AbortController();
  for (const { process } of processes) process.exited.finally(() => died.abort()).catch(() => {});
  return AbortSignal.any([signal, died.signal]);
}

function comparison(before: Calm | undefined, after: Calm | undefined): readonly string[] {
  if (before === undefined) return ["The run ended in its warm-up: there are no figures to compare with."];
  if (before.restless.length > 0) return before.restless.map((each) => `After the warm-up: ${each}`);
  if (after === undefined) return ["There are no figures of the end."];
  return [...growthOf(before.figures, after.figures), ...after.restless];
}
