import type { QueueNode } from "../../shared/basics/collections.ts";
import { SharedInterval } from "../../shared/basics/timers.ts";
import type { ClusterRuntime } from "../cluster-runtime/cluster-runtime.ts";
import type { PhaseTotal } from "../metrics/server-metrics.ts";

/** The last 15 minutes in steps of 15 s: a fault is mostly looked at when it is over. */
const STEP_S = 15;
const STEPS = 60;
const SERIES = ["bytesPerSecond", "open", "failed", "limitHits"] as const;
type SeriesName = (typeof SERIES)[number];

/** The oldest step first. */
export type ShownHistory = { readonly stepS: number } & Readonly<Record<SeriesName, readonly number[]>>;

/** One cluster: 960 bytes, so a thousand of them take 1 MB. */
class ClusterSamples {
  readonly #values = new Float32Array(STEPS * SERIES.length);
  #taken = 0;
  #before = { carried: 0, failed: 0, limitHits: 0 };

  constructor(runtime: ClusterRuntime) {
    this.#before = totalsOf(runtime);
  }

  take(runtime: ClusterRuntime): void {
    const now = totalsOf(runtime);
    const { carried, failed, limitHits } = this.#before;
    this.#before = now;
    const { establishedConnects } = runtime.tunnels;
    const step = [
      (now.carried - carried) / STEP_S,
      establishedConnects,
      now.failed - failed,
      now.limitHits - limitHits,
    ];
    this.#values.set(step, (this.#taken % STEPS) * SERIES.length);
    this.#taken++;
  }

  /** Adds the steps to sums, which are as long as the longest history. */
  addTo(sums: Record<SeriesName, number[]>): void {
    const steps = Math.min(this.#taken, STEPS);
    for (const [column, name] of SERIES.entries()) {
      const sum = sums[name];
      for (let ago = 1; ago <= steps; ago++) {
        const at = ((this.#taken - ago) % STEPS) * SERIES.length + column;
        sum[STEPS - ago] = (sum[STEPS - ago] ?? 0) + (this.#values[at] ?? 0);
      }
    }
  }

  /** In the last minute, as far as it is known. */
  limitHitsOfLate(runtime: ClusterRuntime): number {
    let hits = totalsOf(runtime).limitHits - this.#before.limitHits;
    for (let ago = 1; ago < Math.min(60 / STEP_S, this.#taken); ago++) {
      hits += this.#values[((this.#taken - ago) % STEPS) * SERIES.length + SERIES.indexOf("limitHits")] ?? 0;
    }
    return hits;
  }
}

function totalsOf({ figures }: ClusterRuntime) {
  let limitHits = 0;
  for (const hits of figures.limitsHit.values()) limitHits += hits;
  return { carried: figures.carried, failed: figures.connects - (figures.outcomes.get("ok") ?? 0), limitHits };
}

/** The mean time of one part of the CONNECTs of the last 15 minutes, ms, and in how many it was needed. */
export interface ShownPhase {
  readonly phase: PhaseTotal["phase"];
  readonly count: number;
  readonly meanMs: number;
}

/** Recent traffic and refusals of each cluster, recorded whether or not anybody looks. */
export class TrafficHistory {
  readonly #clusters: () => Iterable<ClusterRuntime>;
  readonly #phaseTotals: () => readonly PhaseTotal[];
  #samples = new Map<string, ClusterSamples>();
  /** At each step, the oldest first. */
  readonly #totals: (readonly PhaseTotal[])[] = [];
  readonly #place: QueueNode<() => void>;
  /** Grows with each step. */
  steps = 0;

  constructor(clusters: () => Iterable<ClusterRuntime>, phaseTotals: () => readonly PhaseTotal[]) {
    this.#clusters = clusters;
    this.#phaseTotals = phaseTotals;
    this.#place = SharedInterval.every(STEP_S * 1_000).add(this.take);
  }

  close(): void {
    this.#place.leave();
  }

  /** Called at each step; forgets clusters that are not served any more. */
  readonly take = (): void => {
    const samples = new Map<string, ClusterSamples>();
    for (const runtime of this.#clusters()) {
      const { name } = runtime.cluster;
      const known = this.#samples.get(name) ?? new ClusterSamples(runtime);
      known.take(runtime);
      samples.set(name, known);
    }
    this.#samples = samples;
    this.#totals.push(this.#phaseTotals());
    if (this.#totals.length > STEPS) this.#totals.shift();
    this.steps++;
  };

  /** Where the time of the CONNECTs of all clusters has gone. */
  phases(): ShownPhase[] {
    const [oldest] = this.#totals;
    // A process younger than 15 minutes has no earlier CONNECTs.
    const before = this.steps > STEPS ? oldest : undefined;
    return this.#phaseTotals().map(({ phase, count, sum }, at) => {
      const since = count - (before?.[at]?.count ?? 0);
      const seconds = sum - (before?.[at]?.sum ?? 0);
      return { phase, count: since, meanMs: since === 0 ? 0 : Math.round((seconds / since) * 100_000) / 100 };
    });
  }

  /** How often limits of the cluster were hit in the last minute. */
  limitHitsOfLate(runtime: ClusterRuntime): number {
    return this.#samples.get(runtime.cluster.name)?.limitHitsOfLate(runtime) ?? 0;
  }

  /** Of one cluster, or of all together. */
  shown(cluster?: string): ShownHistory {
    const sums = { bytesPerSecond: zeros(), open: zeros(), failed: zeros(), limitHits: zeros() };
    const some = cluster === undefined ? this.#samples.values() : [this.#samples.get(cluster)];
    for (const samples of some) samples?.addTo(sums);
    for (const name of SERIES) sums[name] = sums[name].map(Math.round);
    return { stepS: STEP_S, ...sums };
  }
}

function zeros(): number[] {
  return new Array<number>(STEPS).fill(0);
}
