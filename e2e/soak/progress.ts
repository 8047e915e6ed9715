import type { Figures } from "./figures.ts";
import type { Soaked } from "./processes.ts";
import type { Site } from "./site.ts";
import type { Tally } from "./tally.ts";
import { mib, wholeMib } from "./verdict.ts";

const EVERY_MS = 10_000;

function heldBy({ name, process }: Soaked): string {
  try {
    return `${name} ${wholeMib(process.rssBytes())} ${process.fdCount()} fds`;
  } catch {
    return `${name} has ended`;
  }
}

/** Says every ten seconds where a run is. */
export class Progress implements Disposable {
  readonly #site: Site;
  readonly #tally: Tally;
  readonly #say: (line: string) => void;
  readonly #began = performance.now();
  readonly #timer: NodeJS.Timeout;
  phase = "start";

  constructor(site: Site, tally: Tally, say: (line: string) => void) {
    this.#site = site;
    this.#tally = tally;
    this.#say = say;
    this.#timer = setInterval(() => this.sayProgress(), EVERY_MS);
  }

  [Symbol.dispose](): void {
    clearInterval(this.#timer);
  }

  sayProgress(): void {
    const { connections, bytes, resets, stalled, changes, faultCount } = this.#tally;
    const done = [
      `${connections} connections`,
      `${wholeMib(bytes)} verified`,
      `${this.#site.cuts} cuts`,
      `${resets} resets`,
      `${stalled} stalled`,
      `${changes} changes`,
      `${faultCount} lost`,
    ];
    const held = this.#site.processes.map(heldBy);
    this.#say(`${this.#elapsed()} ${this.phase}: ${done.join(", ")} | ${held.join(", ")}`);
  }

  sayFigures(when: string, figures: readonly Figures[]): void {
    const each = figures.map(
      ({ name, rssBytes, heldBytes, descriptors }) =>
        `${name} ${mib(rssBytes)} RSS, ${mib(heldBytes)} held, ${descriptors} fds`,
    );
    this.#say(`${this.#elapsed()} ${when}: ${each.join("; ")}`);
  }

  #elapsed(): string {
    const seconds = Math.round((performance.now() - this.#began) / 1_000);
    return `${Math.floor(seconds / 60)}:${String(seconds % 60).padStart(2, "0")}`;
  }
}
