import type { CarrierLost } from "../../shared/link/carrier.ts";

export interface PathOptions {
  /** Interval of pings as configured, ms; never made longer. */
  readonly keepaliveMs: number;
  /** A carrier is replaced at this age, ms; 0: only where the path has shown a limit. */
  readonly maxCarrierAgeMs: number;
  readonly random?: () => number;
  /** A clock that only goes forward, ms. */
  readonly now?: () => number;
}

/** So many cuts are remembered, */
const MEMORY = 8;
/** and for so long, as is what they have taught: paths change, and nobody says so. */
const MEMORY_MS = 24 * 3_600_000;
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
  readonly atMs: number;
}

/** A time that the path has shown, and when it was last seen. */
interface Learned {
  readonly ms: number;
  readonly atMs: number;
}

/** What may be shown of a path. */
export type LearnedPath = Pick<Path, "keepaliveMs" | "idleLimitMs" | "ageLimitMs">;

/**
 * What an agent has learned of the way to one server: how long a connection may be idle on it, and how old it may get
 * (design: "Link and resumption"). Balancers, proxies and firewalls have such limits and tell nobody. Kept in memory, for
 * a day after it was last seen: to learn it anew costs two cuts, which no stream notices. Pure.
 */
export class Path {
  /** Somebody who ends TLS in between was the last to be met. */
  intercepted = false;
  readonly #options: Required<PathOptions>;
  /** The newest is the last. */
  #cuts: Cut[] = [];
  /** The last loss, if it was by silence. */
  #silence: { readonly atMs: number } | undefined;
  #idleLimit: Learned | undefined;
  #ageLimit: Learned | undefined;
  /** The interval of pings that silence has led to. */
  #halved: Learned | undefined;

  constructor(options: PathOptions) {
    this.#options = { random: Math.random, now: () => performance.now(), ...options };
  }

  /** Milliseconds between the pings of the next carrier. */
  get keepaliveMs(): number {
    const { keepaliveMs } = this.#options;
    const idleMs = (this.idleLimitMs ?? Number.POSITIVE_INFINITY) * IDLE_SHARE;
    const halvedMs = this.#fresh(this.#halved)?.ms ?? Number.POSITIVE_INFINITY;
    return Math.max(this.#least, Math.min(keepaliveMs, idleMs, halvedMs));
  }

  /** Time without a byte after which connections are cut here; `undefined`: none was seen of late. */
  get idleLimitMs(): number | undefined {
    return this.#fresh(this.#idleLimit)?.ms;
  }

  /** Age at which connections are cut here; `undefined`: none was seen of late. */
  get ageLimitMs(): number | undefined {
    return this.#fresh(this.#ageLimit)?.ms;
  }

  /** How old the next carrier shall get, ms; another one each time, so that a thousand agents do not change together. */
  nextCarrierAgeMs(): number | undefined {
    const { maxCarrierAgeMs, random } = this.#options;
    const learned = (this.ageLimitMs ?? Number.POSITIVE_INFINITY) * AGE_SHARE;
    const ageMs = Math.min(learned, maxCarrierAgeMs === 0 ? Number.POSITIVE_INFINITY : maxCarrierAgeMs);
    return Number.isFinite(ageMs) ? ageMs * (1 - JITTER + 2 * JITTER * random()) : undefined;
  }

  /** A carrier was lost that nobody wanted to lose. */
  onLost({ lossCause, ageMs, idleMs }: Pick<CarrierLost, "lossCause" | "ageMs" | "idleMs">): void {
    const atMs = this.#options.now();
    if (lossCause === "silent") {
      this.#onSilence(atMs);
      return;
    }
    this.#silence = undefined;
    this.#cuts = [...this.#cuts, { ageMs, idleMs, atMs }].filter((cut) => this.#fresh(cut)).slice(-MEMORY);
    const idle = repeated(times(this.#cuts.slice(-2), "idleMs"), LEAST_IDLE_MS);
    if (idle !== undefined) this.#idleLimit = { ...idle, ms: Math.min(idle.ms, this.idleLimitMs ?? idle.ms) };
    else this.#ageLimit = repeated(times(this.#cuts, "ageMs"), LEAST_AGE_MS) ?? this.#ageLimit;
  }

  /** A firewall that forgets idle connections says nothing at all: the time is unknown, and found by halving. */
  #onSilence(atMs: number): void {
    if (this.#fresh(this.#silence)) this.#halved = { ms: this.keepaliveMs / 2, atMs };
    this.#silence = { atMs };
  }

  #fresh<T extends { readonly atMs: number }>(seen: T | undefined): T | undefined {
    return seen !== undefined && this.#options.now() - seen.atMs < MEMORY_MS ? seen : undefined;
  }

  get #least(): number {
    return Math.min(LEAST_KEEPALIVE_MS, this.#options.keepaliveMs);
  }
}

function times(cuts: readonly Cut[], which: "ageMs" | "idleMs"): Learned[] {
  return cuts.map((cut) => ({ ms: cut[which], atMs: cut.atMs }));
}

/** The smallest time that was seen twice, and when it was last; `undefined`: none was. */
function repeated(seen: readonly Learned[], leastMs: number): Learned | undefined {
  const sorted = seen.filter(({ ms }) => ms >= leastMs).sort((a, b) => a.ms - b.ms);
  for (const { ms } of sorted) {
    const alike = sorted.filter((other) => other.ms >= ms && other.ms <= ms * ALIKE);
    if (alike.length > 1) return { ms, atMs: Math.max(...alike.map(({ atMs }) => atMs)) };
  }
  return undefined;
}
