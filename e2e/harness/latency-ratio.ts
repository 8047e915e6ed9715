import { percentile } from "../bench/stats.ts";
import { Random } from "./random.ts";

export type Side = "attacked" | "calm";

/** ms through each of two servers, in the same window of time. */
export type LatencyWindow = Readonly<Record<Side, number[]>>;

/** The high percentile through one server as a multiple of that through the other. */
export interface LatencyRatio {
  /** Which percentile: the 99th, or the highest that enough samples lie above. */
  readonly percentile: number;
  /** ms. */
  readonly attacked: number;
  readonly calm: number;
  readonly ratio: number;
  /** The ratio without what may be chance: nineteen of twenty draws of the same windows are above it. */
  readonly atLeast: number;
}

const HIGHEST = 99;
/** A percentile with fewer samples above it is a matter of luck. */
const SAMPLES_ABOVE = 10;
const DRAWS = 100;

/**
 * All windows together: a window of 500 ms has few samples, and between two idle servers its p99 ratio was anything
 * from
 * 0.02 to 18 on a busy machine.
 * How much of the result is chance is found by drawing whole windows again, with replacement (block bootstrap).
 * `plusMs` is subtracted from the attacked side first.
 */
export function latencyRatio(windows: readonly LatencyWindow[], plusMs = 0): LatencyRatio {
  const samples = Math.min(all(windows, "attacked").length, all(windows, "calm").length);
  const p = Math.max(50, Math.min(HIGHEST, 100 * (1 - SAMPLES_ABOVE / samples)));
  const of = (some: readonly LatencyWindow[], side: Side) => percentile(all(some, side), p);
  const ratioOf = (some: readonly LatencyWindow[]) => (of(some, "attacked") - plusMs) / of(some, "calm");
  const random = new Random(1);
  const drawn = () => windows.map(() => windows[random.between(0, windows.length - 1)] as LatencyWindow);
  const ratios = Array.from({ length: DRAWS }, () => ratioOf(drawn()));
  return {
    percentile: p,
    attacked: of(windows, "attacked"),
    calm: of(windows, "calm"),
    ratio: ratioOf(windows),
    atLeast: percentile(ratios, 5),
  };
}

function all(windows: readonly LatencyWindow[], side: Side): number[] {
  return windows.flatMap((window) => window[side]);
}
