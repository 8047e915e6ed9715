import { parseArgs } from "node:util";
import { seedOfRun } from "../harness/random.ts";

export interface Settings {
  readonly minutes: number;
  readonly seed: number;
  readonly build: boolean;
  /** Folder for the whole log of each process; without it, only what must not be logged is kept. */
  readonly logs: string | undefined;
}

/** How long each part of a run takes, ms. A calm follows the warm-up and the load. */
interface Phases {
  readonly warmUpMs: number;
  readonly loadMs: number;
  readonly calmMs: number;
}

export const USAGE = "npm run soak -- [--minutes 30] [--seed NUMBER] [--logs FOLDER] [--no-build]";

export function readSettings(args: readonly string[]): Settings {
  const { values } = parseArgs({
    args: [...args],
    options: {
      minutes: { type: "string", default: "30" },
      seed: { type: "string" },
      logs: { type: "string" },
      "no-build": { type: "boolean", default: false },
    },
  });
  const minutes = Number(values.minutes);
  if (!(minutes >= 1)) throw new Error(`--minutes wants a number of at least 1, not "${values.minutes}"`);
  const seed = values.seed === undefined ? seedOfRun() : Number(values.seed);
  if (!Number.isInteger(seed)) throw new Error(`--seed wants a whole number, not "${values.seed}"`);
  return { minutes, seed, build: !values["no-build"], logs: values.logs };
}

const SECOND = 1_000;

/**
 * Long enough for figures to settle where the run is long, and short enough to leave half of a short one to the load.
 */
export function phasesOf(minutes: number): Phases {
  const totalMs = minutes * 60 * SECOND;
  const warmUpMs = between(20 * SECOND, totalMs / 5, 120 * SECOND);
  const calmMs = between(10 * SECOND, totalMs / 8, 60 * SECOND);
  return { warmUpMs, calmMs, loadMs: totalMs - warmUpMs - 2 * calmMs };
}

function between(least: number, value: number, most: number): number {
  return Math.min(most, Math.max(least, value));
}
