import { Counter, collectDefaultMetrics, Gauge, Histogram, type Metric, Registry } from "prom-client";
import type { OutcomeCode } from "../outcomes.ts";
import { buildInfo } from "./build-info.ts";

/** Seconds: a dial inside a rack to one that nearly failed. */
export const DIAL_BUCKETS = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10];
/** Seconds: from one request to a watch of a day. */
export const LIFE_BUCKETS = [0.01, 0.1, 1, 5, 15, 60, 300, 900, 3_600, 14_400, 86_400];

/** Label values that a stranger could invent stop here; the rest is counted together. */
const MAX_SERIES = 50_000;

/** Labels whose values are names of tenants. */
const NAMING: readonly string[] = ["cluster", "route"];

/** A number that costs an addition to count, and is read when metrics are asked for. */
export class Tally {
  value = 0;

  add(amount = 1): void {
    this.value += amount;
  }

  /** For gauges: an end that was counted twice must not make a nonsense of the rest. */
  subtract(amount = 1): void {
    this.value = Math.max(0, this.value - amount);
  }
}

/** What a gauge shows of each cluster. */
export type ByCluster = Iterable<readonly [cluster: string, value: number]>;

/** A histogram with the label `outcome`: `ok`, or a code of `shared/outcomes.ts`. */
export interface OutcomeHistogram {
  observe(value: number, outcome: OutcomeCode | "ok"): void;
}

/** One tally for each combination of label values; bounded. */
export class LabelledTally {
  readonly #series = new Map<string, { readonly labels: readonly string[]; value: number }>();
  readonly #width: number;

  constructor(width: number) {
    this.#width = width;
  }

  add(amount: number, ...labels: readonly string[]): void {
    const key = labels.join("\0");
    const known = this.#series.get(key);
    if (known !== undefined) known.value = Math.max(0, known.value + amount);
    else if (this.#series.size < MAX_SERIES) this.#series.set(key, { labels, value: Math.max(0, amount) });
    else this.#others().value += amount;
  }

  *[Symbol.iterator](): Iterable<readonly [labels: readonly string[], value: number]> &
    Iterator<readonly [readonly string[], number]> {
    for (const { labels, value } of this.#series.values()) yield [labels, value];
  }

  /** What has this as its first label is no longer told. */
  forget(label: string): void {
    for (const [key, { labels }] of this.#series) if (labels[0] === label) this.#series.delete(key);
  }

  #others(): { value: number } {
    const labels = Array.from({ length: this.#width }, () => "other");
    const key = labels.join("\0");
    const others = this.#series.get(key) ?? { labels, value: 0 };
    this.#series.set(key, others);
    return others;
  }
}

/**
 * The metrics of one process on a registry of their own. Hot paths touch plain numbers; the library
 * sees them when somebody scrapes. A metric may have several names: ours, and Konnectivity's alias.
 */
export class Instruments {
  readonly registry = new Registry();
  /** Those of the registry that say no tenant's name: for a port that many can reach. */
  readonly withoutNames = new Registry();

  constructor(options: { readonly processMetrics?: boolean } = {}) {
    if (options.processMetrics ?? true) {
      collectDefaultMetrics({ register: this.registry, eventLoopMonitoringPrecision: 20 });
      // The library says less of what it gives than of what it takes.
      for (const metric of this.registry.getMetricsAsArray())
        this.withoutNames.registerMetric(metric as unknown as Metric);
      const { version, revision, node } = buildInfo();
      const labels = [[[version, revision, node], 1]] as const;
      this.gauges("culvert_build_info", "1, with the build that runs.", ["version", "revision", "node"], () => labels);
    }
  }

  #registries(labelNames: readonly string[] = []): Registry[] {
    const isNaming = labelNames.some((label) => NAMING.includes(label));
    return isNaming ? [this.registry] : [this.registry, this.withoutNames];
  }

  counter(names: readonly string[], help: string): Tally {
    const tally = new Tally();
    for (const name of names) {
      const counter = new Counter({ name, help, registers: this.#registries(), collect });
      function collect(): void {
        counter.reset();
        counter.inc(tally.value);
      }
    }
    return tally;
  }

  /** A counter that others keep and that is read when somebody scrapes. */
  total(name: string, help: string, read: () => number): void {
    const counter = new Counter({ name, help, registers: this.#registries(), collect });
    function collect(): void {
      counter.reset();
      counter.inc(read());
    }
  }

  counters<const L extends readonly string[]>(name: string, help: string, labelNames: L): LabelledTally {
    const tally = new LabelledTally(labelNames.length);
    const counter = new Counter({ name, help, labelNames, registers: this.#registries(labelNames), collect });
    function collect(): void {
      counter.reset();
      for (const [labels, value] of tally) counter.inc(labelled(labelNames, labels), value);
    }
    return tally;
  }

  /** A gauge that is read when somebody scrapes: a number, or one for each combination of label values. */
  gauge(names: readonly string[], help: string, read: () => number): void {
    for (const name of names) {
      const gauge = new Gauge({ name, help, registers: this.#registries(), collect });
      function collect(): void {
        gauge.set(read());
      }
    }
  }

  gauges<const L extends readonly string[]>(
    name: string,
    help: string,
    labelNames: L,
    read: () => Iterable<readonly [labels: readonly string[], value: number]>,
  ): void {
    const gauge = new Gauge({ name, help, labelNames, registers: this.#registries(labelNames), collect });
    function collect(): void {
      gauge.reset();
      for (const [labels, value] of read()) gauge.set(labelled(labelNames, labels), value);
    }
  }

  /**
   * A gauge for each cluster; where no tenant is named, one number for all of them: their sum, or `readAll` where
   * something counts that belongs to no configured cluster any more.
   */
  gaugeByCluster(name: string, help: string, read: () => ByCluster, readAll: () => number = () => sumOf(read())): void {
    const byCluster = new Gauge({ name, help, labelNames: ["cluster"], registers: [this.registry], collect: each });
    const all = new Gauge({ name, help, registers: [this.withoutNames], collect: together });
    function each(): void {
      byCluster.reset();
      for (const [cluster, value] of read()) byCluster.set({ cluster }, value);
    }
    function together(): void {
      all.set(readAll());
    }
  }

  histogram(name: string, help: string, buckets: readonly number[]): Histogram {
    return new Histogram({ name, help, buckets: [...buckets], registers: this.#registries() });
  }

  /** One histogram for each outcome; what counts into it is looked up once. `ok` is there from the start. */
  histogramByOutcome(name: string, help: string, buckets: readonly number[]): OutcomeHistogram {
    const labelNames = ["outcome"];
    const all = new Histogram({
      name,
      help,
      labelNames,
      buckets: [...buckets],
      registers: this.#registries(labelNames),
    });
    all.zero({ outcome: "ok" });
    const series = new Map<string, { observe(value: number): void }>();
    return {
      observe: (value, outcome) => {
        const one = series.get(outcome) ?? all.labels(outcome);
        series.set(outcome, one);
        one.observe(value);
      },
    };
  }
}

function sumOf(values: ByCluster): number {
  let sum = 0;
  for (const [, value] of values) sum += value;
  return sum;
}

function labelled(names: readonly string[], values: readonly string[]): Record<string, string> {
  return Object.fromEntries(names.map((name, index) => [name, values[index] ?? ""]));
}
