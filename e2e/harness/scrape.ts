/** Metrics in Prometheus' text form. */
export class Scrape {
  readonly #text: string;

  constructor(text: string) {
    this.#text = text;
  }

  /** The value of one series, its labels in any order; 0 when it is not there. */
  value(name: string, labels: Readonly<Record<string, string>> = {}): number {
    for (const line of this.#text.split("\n")) {
      const match = /^([a-zA-Z_:]\w*)(?:\{(.*)\})? (\S+)$/.exec(line);
      if (match?.[1] !== name || !sameLabels(match[2] ?? "", labels)) continue;
      return Number(match[3]);
    }
    return 0;
  }
}

function sameLabels(text: string, wanted: Readonly<Record<string, string>>): boolean {
  const found = [...text.matchAll(/(\w+)="((?:[^"\\]|\\.)*)"/g)];
  return found.length === Object.keys(wanted).length && found.every(([, key = "", value]) => wanted[key] === value);
}

/** What a registry in this process shows. */
export async function scrapeRegistry(registry: { metrics(): Promise<string> }): Promise<Scrape> {
  return new Scrape(await registry.metrics());
}

/** What `/metrics` of a process shows. */
export async function scrapePort(port: number): Promise<Scrape> {
  const response = await fetch(`http://127.0.0.1:${port}/metrics`, { signal: AbortSignal.timeout(5_000) });
  return new Scrape(await response.text());
}
