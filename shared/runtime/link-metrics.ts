import type { Instruments, LabelledTally, Tally } from "./metrics.ts";

/** Numbers of the links that stand now, read when somebody scrapes. */
export interface LiveLinks {
  readonly carried: number;
  readonly suspended: number;
  /** Bytes kept for a next carrier. */
  readonly replayBytes: number;
}

/** Counts links by their state. */
export function liveLinks(links: Iterable<{ readonly suspended: boolean; readonly replayBytes: number }>): LiveLinks {
  const live = { carried: 0, suspended: 0, replayBytes: 0 };
  for (const { suspended, replayBytes } of links) {
    live[suspended ? "suspended" : "carried"]++;
    live.replayBytes += replayBytes;
  }
  return live;
}

/** What has become of a link that has a connection again. */
export interface Resumed {
  readonly suspendedMs: number;
  readonly replayedBytes: number;
  /** How the one before was lost; `undefined`: it was still alive. */
  readonly lost: { readonly lossCause: string } | undefined;
}

/** The cause where none was lost: another connection was to replace the one that there was. */
export const PLANNED = "planned";
/** The cause where whoever counts does not know it: a server that refuses a resume. */
const UNKNOWN = "unknown";

const NONE: LiveLinks = { carried: 0, suspended: 0, replayBytes: 0 };

/** What both ends tell of their links (docs/link-protocol.md), under the name of their side. */
export class LinkMetrics {
  readonly #suspensions: LabelledTally;
  readonly #resumes: LabelledTally;
  readonly #expiries: Tally;
  readonly #replayed: Tally;
  readonly #suspendedSeconds: Tally;
  #live: () => LiveLinks = () => NONE;

  constructor(make: Instruments, side: "server" | "agent") {
    const name = (rest: string): string => `culvert_${side}_link_${rest}`;
    this.#suspensions = make.counters(name("suspensions_total"), "Links that lost their connection.", ["cause"]);
    this.#resumes = make.counters(
      name("resumes_total"),
      "New connections for links that were there already, and why the one before did not do.",
      ["result", "cause"],
    );
    this.#expiries = make.counter([name("grace_expiries_total")], "Links that found no new connection in time.");
    this.#replayed = make.counter([name("replayed_bytes_total")], "Bytes sent once more after a resume.");
    this.#suspendedSeconds = make.counter([name("suspended_seconds_total")], "Time links spent without a connection.");
    make.gauges(`culvert_${side}_links`, "Links by their state.", ["state"], () => {
      const { carried, suspended } = this.#live();
      return [
        [["carried"], carried],
        [["suspended"], suspended],
      ];
    });
    make.gauge(
      [name("replay_bytes")],
      "Bytes kept until the peer has acknowledged them.",
      () => this.#live().replayBytes,
    );
  }

  watch(live: () => LiveLinks): void {
    this.#live = live;
  }

  /** Links that wait for a connection now. */
  get suspendedNow(): number {
    return this.#live().suspended;
  }

  suspended(cause: string): void {
    this.#suspensions.add(1, cause);
  }

  resumed({ suspendedMs, replayedBytes, lost }: Resumed): void {
    if (lost === undefined) this.#resumes.add(1, "moved", PLANNED);
    else this.#resumes.add(1, "resumed", lost.lossCause);
    this.#replayed.add(replayedBytes);
    this.#suspendedSeconds.add(suspendedMs / 1_000);
  }

  /** `result` and `cause` are each one of a few words of ours. */
  resumeFailed(result: string, cause: string = UNKNOWN): void {
    this.#resumes.add(1, result, cause);
  }

  graceOver(graceMs: number): void {
    this.#expiries.add();
    this.#suspendedSeconds.add(graceMs / 1_000);
  }
}
