import type { MemoryPool } from "../limits/memory-pool.ts";
import type { Instruments, LabelledMetric, NumberMetric, Sample } from "./metrics.ts";

/** Numbers of the links that are open now. */
interface LiveLinks {
  readonly carried: number;
  readonly suspended: number;
  /** Bytes kept to send them again over the next carrier. */
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

/** A link that has a connection again. */
interface CountedResume {
  readonly suspendedMs: number;
  readonly replayedBytes: number;
  /** How the connection before was lost; `undefined`: it was still alive. */
  readonly lost: { readonly lossCause: string } | undefined;
}

/** Cause of a resume whose connection before was not lost, but replaced as planned. */
export const PLANNED = "planned";
/** Cause of a resume that a server refused, which it does not know. */
const UNKNOWN = "unknown";

/** Metrics of links (docs/link-protocol.md), which server and agent have under their own prefix. */
export class LinkMetrics {
  readonly #suspensions: LabelledMetric;
  readonly #resumes: LabelledMetric;
  readonly #expiries: NumberMetric;
  readonly #replayed: NumberMetric;
  readonly #suspendedSeconds: NumberMetric;
  #live: () => LiveLinks = () => liveLinks([]);

  constructor(make: Instruments, side: "server" | "agent") {
    const name = (rest: string): string => `culvert_${side}_link_${rest}`;
    this.#suspensions = make.counters(name("suspensions_total"), "Links that lost their connection.", ["cause"]);
    this.#resumes = make.counters(
      name("resumes_total"),
      "New connections for existing links, and why the connection before did not serve any longer. result: resumed, moved (the one before still worked), or why it is not resumed (link-protocol.md).",
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

  /** Number of links without a connection. */
  get suspendedNow(): number {
    return this.#live().suspended;
  }

  suspended(cause: string): void {
    this.#suspensions.add(1, cause);
  }

  resumed({ suspendedMs, replayedBytes, lost }: CountedResume): void {
    if (lost === undefined) this.#resumes.add(1, "moved", PLANNED);
    else this.#resumes.add(1, "resumed", lost.lossCause);
    this.#replayed.add(replayedBytes);
    this.#suspendedSeconds.add(suspendedMs / 1_000);
  }

  /** `result` and `cause` are constants, since they are values of labels. */
  resumeFailed(result: string, cause: string = UNKNOWN): void {
    this.#resumes.add(1, result, cause);
  }

  /** A server has carried a resume to the server that has the link. */
  resumeCarried(): void {
    this.#resumes.add(1, "carried_to_owner", UNKNOWN);
  }

  graceOver(graceMs: number): void {
    this.#expiries.add();
    this.#suspendedSeconds.add(graceMs / 1_000);
  }
}

/** Metrics of the memory that a process holds for its tunnels, and of its limit. */
export class MemoryMetrics {
  #pool: MemoryPool | undefined;

  constructor(make: Instruments, side: "server" | "agent") {
    const name = (rest: string): string => `culvert_${side}_${rest}`;
    const held =
      "Bytes held for connections: not read by slow readers, not acknowledged by the peer, or waiting in sockets.";
    if (side === "agent") make.gauge([name("memory_held_bytes")], held, () => this.#pool?.held ?? 0);
    else make.gaugeByCluster(name("memory_held_bytes"), held, () => this.#heldByCluster());
    make.gauge(
      [name("memory_reserved_bytes")],
      "Window credit beyond initial windows: what the peers of fast streams may send at any time.",
      () => this.#pool?.reserved ?? 0,
    );
    make.gauge([name("memory_limit_bytes")], "The value of --memory-limit.", () => this.#pool?.limit ?? 0);
    make.total(
      name("streams_refused_for_memory_total"),
      "Streams refused because --memory-limit was reached and nothing could be freed.",
      () => this.#pool?.refused ?? 0,
    );
    make.total(
      name("connections_ended_for_memory_total"),
      "Connections ended because memory was short and their readers had stopped.",
      () => this.#pool?.ended ?? 0,
    );
  }

  *#heldByCluster(): Iterable<readonly [cluster: string, value: number]> {
    // A cluster that was removed and added again has two shares until its old connections have ended.
    const sums = new Map<string, number>();
    for (const { cluster, held } of this.#pool?.shares() ?? []) sums.set(cluster, (sums.get(cluster) ?? 0) + held);
    yield* sums;
  }

  watch(pool: MemoryPool): void {
    this.#pool = pool;
  }
}

/** A certificate, CA or token with the dates between which it is valid. */
interface ExpiringMaterial {
  /** A constant, since it is a value of a label. */
  readonly role: string;
  /** The cluster whose document names it; empty: a flag names it. */
  readonly cluster: string;
  readonly notBefore: Date;
  readonly notAfter: Date;
}

/** The dates by their metrics' names, with the help of each. */
const DATES = {
  culvert_certificate_expiry_timestamp_seconds: [
    "notAfter",
    "When certificates, CAs and tokens in use end, Unix time. Without the label cluster: the first end of each role.",
  ],
  culvert_certificate_start_timestamp_seconds: [
    "notBefore",
    "When they have begun to be valid, Unix time: the part of a life that is left is an alert for any length of life.",
  ],
} as const;

/** Metrics of the dates of certificates, CAs and tokens. Their names are the same in every process. */
export class ExpiryMetrics {
  #inUse: () => Iterable<ExpiringMaterial> = () => [];

  constructor(make: Instruments) {
    for (const [name, [date, help]] of Object.entries(DATES)) {
      make.gauges(name, help, ["role", "cluster"], () => this.#ofEach(date));
      make.gauges(name, help, ["role"], () => this.#ofFirstToEnd(date), [make.withoutNames]);
    }
  }

  watch(inUse: () => Iterable<ExpiringMaterial>): void {
    this.#inUse = inUse;
  }

  *#ofEach(date: "notBefore" | "notAfter"): Iterable<Sample> {
    for (const each of this.#inUse()) yield [[each.role, each.cluster], seconds(each[date])];
  }

  /** Of each role what ends first: both dates are of the same certificate. */
  #ofFirstToEnd(date: "notBefore" | "notAfter"): Iterable<Sample> {
    const first = new Map<string, ExpiringMaterial>();
    for (const each of this.#inUse()) {
      const known = first.get(each.role);
      if (known === undefined || each.notAfter < known.notAfter) first.set(each.role, each);
    }
    return [...first].map(([role, each]) => [[role], seconds(each[date])]);
  }
}

function seconds(date: Date): number {
  return date.getTime() / 1_000;
}

/** Counters of the spans of a process. */
export class TraceMetrics {
  #tracing: () => { readonly counts: { readonly lost: number } } | undefined = () => undefined;

  constructor(make: Instruments, side: "server" | "agent") {
    make.total(
      `culvert_${side}_spans_lost_total`,
      "Spans that the receiver of --otlp-endpoint has not taken: it was slow, gone, or refused them.",
      () => this.#tracing()?.counts.lost ?? 0,
    );
  }

  watch(tracing: () => { readonly counts: { readonly lost: number } } | undefined): void {
    this.#tracing = tracing;
  }
}
