import type { CarrierLost } from "../../shared/link/carrier.ts";

export interface PathOptions {
  /** Interval of pings as configured, ms; never made longer. */
  readonly keepaliveMs: number;
  /** A carrier is replaced at this age, ms; 0: only where the path has shown a limit. */
  readonly maxCarrierAgeMs: number;
  readonly random?: () => number;
}

/** So many cuts are remembered. */
const MEMORY = 8;
/** Two cuts are of one kind when their times differ by no more than this factor; accidents do not repeat themselves. */
const ALIKE = 1.25;
/** A limit shorter than this is none that anybody sets: it is a server that restarts, or a test. */
const LEAST_AGE_MS = 5_000;
const LEAST_IDLE_MS = 1_000;
/** Part of a learned limit that we stay under. */
const AGE_SHARE = 0.8;
/** Pings come up to 1.2 intervals apart, and their answers take a round trip. */
const IDLE_SHARE = 0.6;
const LEAST_KEEPALIVE_MS = 500;
const JITTER = 0.1;

interface Cut {
  readonly ageMs: number;
  readonly idleMs: number;
}

/** What may be shown of a path. */
export type LearnedPath = Pick<Path, "keepaliveMs" | "idleLimitMs" | "ageLimitMs">;

/**
 * What an agent has learned of the way to one server: how long a connection may be idle on it, and how old it may get
 * (design: "Link and resumption"). Balancers, proxies and firewalls have such limits and tell nobody. Kept in memory, for
 * as long as the process lives. Pure.
 */
export class Path {
  readonly #options: Required<PathOptions>;
  /** The newest is the last. */
  #cuts: Cut[] = [];
  #silences = 0;
  #idleLimitMs: number | undefined;
  #ageLimitMs: number | undefined;
  #keepaliveMs: number;

  constructor(options: PathOptions) {
    this.#options = { random: Math.random, ...options };
    this.#keepaliveMs = options.keepaliveMs;
  }

  /** Milliseconds between the pings of the next carrier. */
  get keepaliveMs(): number {
    return this.#keepaliveMs;
  }

  /** Time without a byte after which connections are cut here; `undefined`: none was seen. */
  get idleLimitMs(): number | undefined {
    return this.#idleLimitMs;
  }

  /** Age at which connections are cut here; `undefined`: none was seen. */
  get ageLimitMs(): number | undefined {
    return this.#ageLimitMs;
  }

  /** How old the next carrier shall get, ms; another one each time, so that a thousand agents do not change together. */
  nextCarrierAgeMs(): number | undefined {
    const { maxCarrierAgeMs, random } = this.#options;
    const learned = this.#ageLimitMs === undefined ? Number.POSITIVE_INFINITY : this.#ageLimitMs * AGE_SHARE;
    const ageMs = Math.min(learned, maxCarrierAgeMs === 0 ? Number.POSITIVE_INFINITY : maxCarrierAgeMs);
    return Number.isFinite(ageMs) ? ageMs * (1 - JITTER + 2 * JITTER * random()) : undefined;
  }

  /** A carrier was lost that nobody wanted to lose. */
  onLost({ lossCause, ageMs, idleMs }: Pick<CarrierLost, "lossCause" | "ageMs" | "idleMs">): void {
    if (lossCause === "silent") {
      this.#onSilence();
      return;
    }
    this.#silences = 0;
    this.#cuts = [...this.#cuts, { ageMs, idleMs }].slice(-MEMORY);
    const idle = repeated(
      this.#cuts.slice(-2).map((cut) => cut.idleMs),
      LEAST_IDLE_MS,
    );
    if (idle !== undefined) this.#learnIdle(Math.min(idle, this.#idleLimitMs ?? idle));
    else
      this.#ageLimitMs =
        repeated(
          this.#cuts.map((cut) => cut.ageMs),
          LEAST_AGE_MS,
        ) ?? this.#ageLimitMs;
  }

  /** A firewall that forgets idle connections says nothing at all: the time is unknown, and found by halving. */
  #onSilence(): void {
    this.#silences++;
    if (this.#silences >= 2) this.#keepaliveMs = Math.max(this.#least, this.#keepaliveMs / 2);
  }

  #learnIdle(limitMs: number): void {
    this.#idleLimitMs = limitMs;
    this.#keepaliveMs = Math.max(this.#least, Math.min(this.#keepaliveMs, limitMs * IDLE_SHARE));
  }

  get #least(): number {
    return Math.min(LEAST_KEEPALIVE_MS, this.#options.keepaliveMs);
  }
}

/** The smallest time that was seen twice; `undefined`: none was. */
function repeated(times: readonly number[], leastMs: number): number | undefined {
  const sorted = times.filter((ms) => ms >= leastMs).sort((a, b) => a - b);
  for (const [index, ms] of sorted.entries()) {
    const next = sorted[index + 1];
    if (next !== undefined && next <= ms * ALIKE) return ms;
  }
  return undefined;
}
