import type { Program } from "../harness/program.ts";
import type { Kubectl } from "./world/kubectl.ts";
import type { Lane } from "./world/lanes.ts";
import type { World } from "./world/world.ts";

/** Something that has to hold for whoever uses kubectl. */
export interface Check {
  /** As the results call it; the same on every lane. */
  readonly name: string;
  readonly deadlineMs: number;
  /** The lanes that it can run on. Left out: every lane. */
  readonly lanes?: readonly Lane[];
  /** It runs on each of its lanes in every run; other checks do so only in a full run. */
  readonly everyLane?: true;
  /** It runs in a full run only. */
  readonly inFullRun?: true;
  /** It mostly waits: it is started first, and the others run meanwhile. */
  readonly beside?: true;
  /** Something is broken on purpose: it is about what kubectl says, and how soon. */
  readonly trouble?: true;
  /** How much more it may cost through culvert than directly. */
  readonly goal?: Goal;
  /** Rejects with what was seen instead. */
  readonly run: (stage: Stage) => Promise<Seen>;
}

/** `time`: half as much again; `dial`: 5 ms at the median. */
export type Goal = "time" | "dial";

/** The context of a check. */
export interface Stage {
  readonly world: World;
  readonly lane: Lane;
  readonly kubeApiserver: Program;
  /** Of the lane's kube-apiserver; what it runs is killed at the check's deadline. */
  readonly kubectl: Kubectl;
  readonly signal: AbortSignal;
}

/** The result of a check that holds. */
export interface Seen {
  /** By kubectl, or by the dialer. */
  readonly printed: string;
  /** Of what is compared, where that is not the whole check. */
  readonly seconds?: number;
  /** Median of the dials, where there are many. */
  readonly p50Ms?: number;
  /** From the end of the trouble until kubectl got through. */
  readonly recoveredSeconds?: number;
}

/** A check on a lane that is over. */
export interface Row extends Seen {
  readonly check: string;
  readonly lane: Lane;
  readonly seconds: number;
  readonly goal?: Goal | undefined;
  readonly trouble?: true | undefined;
  /** CONNECTs answered with 200 meanwhile; unknown for what ran beside others, or over two servers. */
  readonly dials?: number | undefined;
  /** Why it does not hold. */
  readonly failure?: string;
}

/**
 * Whether a check belongs to this lane of a run that has `lanes`. Unless the run is full, a check that is not marked
 * `everyLane` belongs to the first of the run's lanes that it can run on.
 */
export function belongsTo(lane: Lane, check: Check, lanes: readonly Lane[], full: boolean): boolean {
  if (check.inFullRun && !full) return false;
  const possible = lanes.filter((each) => check.lanes?.includes(each) ?? true);
  return full || check.everyLane ? possible.includes(lane) : possible[0] === lane;
}

/** Throws with what was seen. */
export function expect(holds: boolean, what: string, seen: string): void {
  if (!holds) throw new Error(`expected ${what}, and saw:\n${seen.slice(0, 4000)}`);
}

export function oneLine(text: string): string {
  return text.trim().replace(/\s*\n\s*/g, " ⏎ ");
}

export function since(started: number): number {
  return (performance.now() - started) / 1000;
}
