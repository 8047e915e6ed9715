/** Metrics in Prometheus' text form. */
export class Scrape {
  readonly #lines: readonly string[];

  constructor(text: string) {
    this.#lines = text.split("\n");
  }

  /**
   * The value of one series, its labels in any order. A labelled series that has not been counted yet is 0; a metric
   * that is not there at all is an error, so that a name that has changed does not count as nothing.
   */
  value(name: string, labels: Readonly<Record<string, string>> = {}): number {
    const series = this.#series(name).find((one) => sameLabels(one.labels, labels));
    if (series !== undefined) return series.value;
    const wanted = Object.keys(labels);
    if (wanted.length > 0 && this.#has(name)) return 0;
    throw new Error(`/metrics shows no ${name}${wanted.length > 0 ? ` {${wanted.join(",")}}` : ""}`);
  }

  /** The sum of all series that have these labels, and others. */
  sum(name: string, labels: Readonly<Record<string, string>>): number {
    if (!this.#has(name)) throw new Error(`/metrics shows no ${name}`);
    const wanted = Object.entries(labels).map(([key, value]) => `${key}="${value}"`);
    const series = this.#series(name).filter((one) => wanted.every((label) => one.labels.split(",").includes(label)));
    return series.reduce((sum, { value }) => sum + value, 0);
  }

  #has(name: string): boolean {
    return this.#lines.some((line) => line.startsWith(`# TYPE ${name} `));
  }

  #series(name: string): { readonly labels: string; readonly value: number }[] {
    return this.#lines.flatMap((line) => {
      const [, found, labels = "", value] = /^([a-zA-Z_:]\w*)(?:\{(.*)\})? (\S+)$/.exec(line) ?? [];
      return found === name ? [{ labels, value: Number(value) }] : [];
    });
  }
}

function sameLabels(text: string, wanted: Readonly<Record<string, string>>): boolean {
  const found = [...text.matchAll(/(\w+)="((?:[^"\\]|\\.)*)"/g)];
  return found.length === Object.keys(wanted).length && found.every(([, key = "", value]) => wanted[key] === value);
}

/** The metrics of a registry in this process. */
export async function scrapeRegistry(registry: { metrics(): Promise<string> }): Promise<Scrape> {
  return new Scrape(await registry.metrics());
}

/** The metrics at `/metrics` of a process. */
export async function scrapePort(port: number): Promise<Scrape> {
  const response = await fetch(`http://127.0.0.1:${port}/metrics`, { signal: AbortSignal.timeout(5_000) });
  return new Scrape(await response.text());
}
