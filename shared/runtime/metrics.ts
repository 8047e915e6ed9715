import { collectDefaultMetrics, type Metric, type MetricValueWithName, Registry } from "prom-client";
import { getOrMake } from "../basics/collections.ts";
import { buildInfo } from "../basics/program.ts";
import { isBun } from "../node/engine.ts";
import type { OutcomeCode } from "../outcomes.ts";

/** Buckets of dial times, seconds. */
export const DIAL_BUCKETS = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10];
/** Buckets of the lifetime of connections, seconds: from a short request to a watch of a day. */
export const LIFE_BUCKETS = [0.01, 0.1, 1, 5, 15, 60, 300, 900, 3_600, 14_400, 86_400];

/** Bound on combinations of label values, some of which peers can invent. Further ones are counted together. */
const MAX_SERIES = 50_000;

/** Labels whose values are names of tenants. */
const TENANT_LABELS: readonly string[] = ["cluster", "route"];

/** A scrape of these makes Bun walk its whole heap, and everything waits. */
const WALKS_OF_THE_HEAP = ["total", "used", "available"].map((what) => `nodejs_heap_space_size_${what}_bytes`);

/** A plain number that is read only when metrics are scraped, so that counting costs one addition. */
export class NumberMetric {
  value = 0;

  add(amount = 1): void {
    this.value += amount;
  }

  /** For gauges. It never goes below 0, even if the same end is counted twice. */
  subtract(amount = 1): void {
    this.value = Math.max(0, this.value - amount);
  }
}

/** Values of a gauge by cluster. */
export type ByCluster = Iterable<readonly [cluster: string, value: number]>;

/** A value of a metric, and of each of its labels. */
export type Sample = readonly [labels: readonly string[], value: number];

/** One series of a histogram. */
export interface ObservedSeries {
  observe(value: number): void;
  readonly total: SeriesTotal;
}

/** All values of a series so far. */
export interface SeriesTotal {
  readonly count: number;
  readonly sum: number;
}

/** A histogram with the label `outcome`: `ok`, or a code of `shared/outcomes.ts`. */
export interface OutcomeHistogram {
  observe(value: number, outcome: OutcomeCode | "ok"): void;
}

/** One number for each combination of label values, for at most `MAX_SERIES` combinations. */
export class LabelledMetric {
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

  *[Symbol.iterator](): Generator<Sample> {
    for (const { labels, value } of this.#series.values()) yield [labels, value];
  }

  /** Removes all series with this first label value. */
  forget(label: string): void {
    for (const [key, { labels }] of this.#series) if (labels[0] === label) this.#series.delete(key);
  }

  #others(): { value: number } {
    const labels = Array.from({ length: this.#width }, () => "other");
    return getOrMake(this.#series, labels.join("\0"), () => ({ labels, value: 0 }));
  }
}

/** Counts of observed values by bucket. An observation costs a search among the bounds and three additions. */
class HistogramSeries {
  readonly #bounds: readonly number[];
  /** A count for each bound, and the last one for larger values. */
  readonly #counts: number[];
  #sum = 0;

  constructor(bounds: readonly number[]) {
    this.#bounds = bounds;
    this.#counts = new Array<number>(bounds.length + 1).fill(0);
  }

  observe(value: number): void {
    let at = 0;
    while (at < this.#bounds.length && value > (this.#bounds[at] as number)) at++;
    this.#counts[at] = (this.#counts[at] as number) + 1;
    this.#sum += value;
  }

  get total(): SeriesTotal {
    return { count: this.#counts.reduce((sum, each) => sum + each), sum: this.#sum };
  }

  /** The lines of the Prometheus text format: a bucket includes all smaller ones. */
  *values(name: string, labels: Readonly<Record<string, string>>): Generator<MetricValueWithName<string>> {
    let count = 0;
    for (const [at, each] of this.#counts.entries()) {
      count += each;
      yield { metricName: `${name}_bucket`, labels: { le: this.#bounds[at] ?? "+Inf", ...labels }, value: count };
    }
    yield { metricName: `${name}_sum`, labels, value: this.#sum };
    yield { metricName: `${name}_count`, labels, value: count };
  }
}

/** A histogram with one series for each value of `labelName`, or with one series alone. */
export class HistogramMetric {
  readonly name: string;
  readonly help: string;
  readonly type = "histogram";
  readonly labelNames: readonly string[];
  readonly #buckets: readonly number[];
  readonly #series = new Map<string, HistogramSeries>();

  constructor(name: string, help: string, buckets: readonly number[], labelName?: string) {
    this.name = name;
    this.help = help;
    this.#buckets = buckets;
    this.labelNames = labelName === undefined ? [] : [labelName];
  }

  /** The series of this label value; it is shown from now on. */
  series(label = ""): HistogramSeries {
    return getOrMake(this.#series, label, () => new HistogramSeries(this.#buckets));
  }

  /** prom-client calls `get` on a scrape, as on its own histograms, of which each observation costs over 1 µs. */
  registerIn(registries: readonly Registry[]): void {
    for (const registry of registries) registry.registerMetric(this as unknown as Metric);
  }

  async get() {
    const { name, help, type } = this;
    const [labelName] = this.labelNames;
    const values = [...this.#series].flatMap(([label, series]) => {
      const labels: Record<string, string> = labelName === undefined ? {} : { [labelName]: label };
      return [...series.values(name, labels)];
    });
    return { name, help, type, values, aggregator: "sum" };
  }
}

/**
 * Makes the metrics of one process. Hot paths change plain numbers, which prom-client reads on a scrape. A metric can
 * have several names: ours and Konnectivity's.
 */
export class Instruments {
  readonly registry = new Registry();
  /** Metrics without names of tenants, for a port that many can reach. */
  readonly withoutNames = new Registry();

  constructor(options: { readonly processMetrics?: boolean } = {}) {
    if (options.processMetrics ?? true) {
      collectDefaultMetrics({ register: this.registry, eventLoopMonitoringPrecision: 20 });
      if (isBun) for (const name of WALKS_OF_THE_HEAP) this.registry.removeSingleMetric(name);
      // The types of getMetricsAsArray() are narrower than what it returns.
      for (const metric of this.registry.getMetricsAsArray())
        this.withoutNames.registerMetric(metric as unknown as Metric);
      const { version, revision, node } = buildInfo();
      const labels = [[[version, revision, node], 1]] as const;
      this.gauges("culvert_build_info", "1, with the build that runs.", ["version", "revision", "node"], () => labels);
    }
  }

  #registries(labelNames: readonly string[] = []): Registry[] {
    const namesTenants = labelNames.some((label) => TENANT_LABELS.includes(label));
    return namesTenants ? [this.registry] : [this.registry, this.withoutNames];
  }

  counter(names: readonly string[], help: string): NumberMetric {
    const tally = new NumberMetric();
    for (const name of names) this.total(name, help, () => tally.value);
    return tally;
  }

  /** A counter whose value `read` returns on a scrape. */
  total(name: string, help: string, read: () => number): void {
    registerRead({ type: "counter", name, help, labelNames: [] }, () => [[[], read()]], this.#registries());
  }

  counters(name: string, help: string, labelNames: readonly string[]): LabelledMetric {
    const tally = new LabelledMetric(labelNames.length);
    registerRead({ type: "counter", name, help, labelNames }, () => tally, this.#registries(labelNames));
    return tally;
  }

  /** A gauge whose value `read` returns on a scrape. */
  gauge(names: readonly string[], help: string, read: () => number): void {
    for (const name of names) this.gauges(name, help, [], () => [[[], read()]]);
  }

  gauges(
    name: string,
    help: string,
    labelNames: readonly string[],
    read: () => Iterable<Sample>,
    registries = this.#registries(labelNames),
  ): void {
    registerRead({ type: "gauge", name, help, labelNames }, read, registries);
  }

  /**
   * A gauge with the label `cluster`. The registry without names of tenants has one number instead: the sum, or
   * `readAll` if it also counts things of clusters that were removed; none where that is `undefined`.
   */
  gaugeByCluster(
    name: string,
    help: string,
    read: () => ByCluster,
    readAll: () => number | undefined = () => sumOf(read()),
  ): void {
    this.gauges(name, help, ["cluster"], () => [...read()].map(([cluster, value]) => [[cluster], value]));
    const all = (): Sample[] => [readAll()].flatMap((value) => (value === undefined ? [] : [[[], value] as const]));
    this.gauges(name, help, [], all, [this.withoutNames]);
  }

  histogram(name: string, help: string, buckets: readonly number[]): HistogramSeries {
    const histogram = new HistogramMetric(name, help, buckets);
    histogram.registerIn(this.#registries());
    return histogram.series();
  }

  /** A histogram with one series for each of these values of a label. */
  histograms<Value extends string>(
    name: string,
    help: string,
    buckets: readonly number[],
    labelName: string,
    values: readonly Value[],
  ): Readonly<Record<Value, ObservedSeries>> {
    const histogram = new HistogramMetric(name, help, buckets, labelName);
    histogram.registerIn(this.#registries([labelName]));
    const series = Object.fromEntries(values.map((value) => [value, histogram.series(value)]));
    return series as Readonly<Record<string, ObservedSeries>> as Readonly<Record<Value, ObservedSeries>>;
  }

  /** A histogram with the label `outcome`; the series `ok` is shown from the start. */
  histogramByOutcome(name: string, help: string, buckets: readonly number[]): OutcomeHistogram {
    const histogram = new HistogramMetric(name, help, buckets, "outcome");
    histogram.registerIn(this.#registries(["outcome"]));
    histogram.series("ok");
    return { observe: (value, outcome) => histogram.series(outcome).observe(value) };
  }
}

export function sumOf(values: ByCluster): number {
  let sum = 0;
  for (const [, value] of values) sum += value;
  return sum;
}

interface MetricHead {
  readonly type: "counter" | "gauge";
  readonly name: string;
  readonly help: string;
  readonly labelNames: readonly string[];
}

/** A metric as prom-client's registry asks for it on each scrape. Of samples with the same labels the last counts. */
function registerRead(head: MetricHead, read: () => Iterable<Sample>, registries: readonly Registry[]): void {
  const get = async () => {
    const byLabels = new Map([...read()].map((sample) => [sample[0].join("\0"), sample]));
    const values = [...byLabels.values()].map(([labels, value]) => ({
      labels: Object.fromEntries(head.labelNames.map((name, index) => [name, labels[index] ?? ""])),
      value,
    }));
    return { ...head, values, aggregator: "sum" };
  };
  for (const registry of registries) registry.registerMetric({ ...head, get } as unknown as Metric);
}
