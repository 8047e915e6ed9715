import type { Metric, MetricValueWithName, Registry } from "prom-client";

/** Counts of observed values by bucket. An observation costs a search among the bounds and three additions. */
export class HistogramSeries {
  readonly #bounds: readonly number[];
  /** One for each bound, and the last one for larger values. */
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
    let series = this.#series.get(label);
    if (series === undefined) {
      series = new HistogramSeries(this.#buckets);
      this.#series.set(label, series);
    }
    return series;
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
