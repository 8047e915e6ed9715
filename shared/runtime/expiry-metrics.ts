import { Gauge } from "prom-client";
import type { Instruments } from "./metrics.ts";

/** What has an end, as its metric shows it. */
export interface WithEnd {
  /** One of a few words of ours. */
  readonly role: string;
  /** Whose document names it; empty: a flag does. */
  readonly cluster: string;
  readonly notAfter: Date;
}

const NAME = "culvert_certificate_expiry_timestamp_seconds";
const HELP =
  "When certificates, CAs and tokens in use end, Unix time; where no cluster is named, the first of each role.";

/** When certificates, CAs and tokens end, under a name that is the same in every process. */
export class ExpiryMetrics {
  #inUse: () => Iterable<WithEnd> = () => [];

  constructor(make: Instruments) {
    make.gauges(NAME, HELP, ["role", "cluster"], () => this.#ofEach());
    const gauge = new Gauge({
      ...{ name: NAME, help: HELP, labelNames: ["role"], registers: [make.withoutNames] },
      collect: () => {
        gauge.reset();
        for (const [role, end] of this.#firstOfEachRole()) gauge.set({ role }, end);
      },
    });
  }

  watch(inUse: () => Iterable<WithEnd>): void {
    this.#inUse = inUse;
  }

  *#ofEach(): Iterable<readonly [labels: readonly string[], value: number]> {
    for (const { role, cluster, notAfter } of this.#inUse()) yield [[role, cluster], seconds(notAfter)];
  }

  #firstOfEachRole(): Map<string, number> {
    const first = new Map<string, number>();
    for (const { role, notAfter } of this.#inUse()) {
      first.set(role, Math.min(seconds(notAfter), first.get(role) ?? Number.POSITIVE_INFINITY));
    }
    return first;
  }
}

function seconds(date: Date): number {
  return date.getTime() / 1_000;
}
