import { seconds } from "../../shared/basics/text.ts";
import type { LossFacts } from "../../shared/link/link-events.ts";
import type { LearnedPath, LessonName } from "../context/metrics.ts";

export interface PathOptions {
  /** Interval of pings as configured, ms; never made longer. */
  readonly keepaliveMs: number;
  /** A carrier is replaced at this age, ms; 0: only where the path has shown a limit. */
  readonly maxCarrierAgeMs: number;
  readonly random?: () => number;
  /** A clock that only goes forward, ms. */
  readonly now?: () => number;
}

// ── cuts: how many count, and when two of them show a limit ─────────────────────────────────────────────────────────

/** The newest cuts count, and only those of the last day, as do the limits learned from them: paths change. */
const MEMORY = 8;
const MEMORY_MS = 24 * 3_600_000;
/** Two cuts after a silence are of one kind when their times differ by no more than this factor. */
const ALIKE = 1.25;
/** Two cuts at an age: a limit is always the same, and ages differ less by chance than silences do. */
const SAME_AGE = 1.1;
/** If the connection survived a silence that was longer by this factor, idle time did not cause the last cut. */
const LONGER = 1.1;
/** Nobody configures a shorter limit: such cuts come from a server that restarts, or from a test. */
const LEAST_AGE_MS = 5_000;
const LEAST_IDLE_MS = 1_000;
/** A learned age is believed for this many times its length: where it is wrong, each of them costs a connection. */
const HOLDS_FOR_TIMES = 100;

// ── cures: how far the agent stays under a limit ────────────────────────────────────────────────────────────────────

/** The part of an age limit at which a carrier is replaced, and how far carriers differ in it. */
const AGE_SHARE = 0.8;
const JITTER = 0.1;
/** The part of an idle limit between two pings: they come up to 1.2 intervals apart, and answers take a round trip. */
const IDLE_SHARE = 0.6;
const LEAST_KEEPALIVE_MS = 500;

// ── echoes: when a path holds bytes back ────────────────────────────────────────────────────────────────────────────

/** No line is so long that an answer to a ping takes this; something holds it back. */
const HELD_BACK_MS = 1_000;
/** Number of the last few answers that must be this late: a single one may have waited behind a bulk transfer. */
const LATE_ECHOES = 3;
const ECHOES = 4;

interface Cut {
  readonly ageMs: number;
  /** 0: not for its silence. */
  readonly idleMs: number;
  readonly atMs: number;
}

/** A time that the path has shown, and when it was last seen. */
interface Learned {
  readonly ms: number;
  readonly atMs: number;
}

/** Something that was not known of a path before. */
export interface Lesson {
  readonly lesson: LessonName;
  /** The limit, or the time that is new. */
  readonly ms: number;
  /** What it is, and what is done about it. */
  readonly sentence: string;
}

/**
 * What an agent has learned of the way to one server: how long a connection may be idle on it, and how old it may get.
 * Balancers, proxies and firewalls have such limits and do not announce them. A limit is kept in memory for a day after
 * it was last seen: to learn it anew costs two cuts, which no stream notices. Pure.
 */
export class Path implements LearnedPath {
  /** The last dial found a middlebox that ends TLS. */
  intercepted = false;
  /** Called for each new lesson. */
  onLesson: (lesson: Lesson) => void = () => {};
  readonly #options: Required<PathOptions>;
  /** The newest is the last. */
  #cuts: Cut[] = [];
  /** The last loss, if it was by silence. */
  #silence: { readonly atMs: number } | undefined;
  #idleLimit: Learned | undefined;
  #ageLimit: Learned | undefined;
  /** The interval of pings that silence has led to. */
  #halved: Learned | undefined;
  /** The newest is the last. */
  #echoes: number[] = [];
  #heldBackMs: number | undefined;

  constructor(options: PathOptions) {
    this.#options = { random: Math.random, now: () => performance.now(), ...options };
  }

  /** Milliseconds between the pings of the next carrier. */
  get keepaliveMs(): number {
    const { keepaliveMs } = this.#options;
    const idleMs = (this.idleLimitMs ?? Number.POSITIVE_INFINITY) * IDLE_SHARE;
    const halvedMs = this.#fresh(this.#halved)?.ms ?? Number.POSITIVE_INFINITY;
    const leastMs = Math.min(LEAST_KEEPALIVE_MS, keepaliveMs);
    return Math.max(leastMs, Math.min(keepaliveMs, idleMs, halvedMs));
  }

  /** Time without a byte after which connections are cut here; `undefined`: none was seen of late. */
  get idleLimitMs(): number | undefined {
    return this.#fresh(this.#idleLimit)?.ms;
  }

  /** Age at which connections are cut here; `undefined`: none was seen of late. */
  get ageLimitMs(): number | undefined {
    const { ms, atMs } = this.#fresh(this.#ageLimit) ?? { ms: 0, atMs: 0 };
    return this.#options.now() - atMs < HOLDS_FOR_TIMES * ms ? ms : undefined;
  }

  /** How long answers to pings take where something in between holds bytes back; `undefined`: they come in time. */
  get heldBackMs(): number | undefined {
    return this.#heldBackMs;
  }

  /**
   * How old the next carrier shall get, ms, Infinity: any age; another one each time, so that a thousand agents do not
   * change together.
   */
  nextCarrierAgeMs(): number {
    const { maxCarrierAgeMs, random } = this.#options;
    const learned = (this.ageLimitMs ?? Number.POSITIVE_INFINITY) * AGE_SHARE;
    const ageMs = Math.min(learned, maxCarrierAgeMs === 0 ? Number.POSITIVE_INFINITY : maxCarrierAgeMs);
    return ageMs * (1 - JITTER + 2 * JITTER * random());
  }

  /** A carrier was lost that neither end wanted to close. */
  onLost({ lossCause, ageMs, ...silence }: LossFacts): void {
    const atMs = this.#options.now();
    if (lossCause === "silent") {
      this.#onSilence(atMs);
      return;
    }
    this.#silence = undefined;
    const idleMs = (silence.quietMs ?? 0) > silence.idleMs * LONGER ? 0 : silence.idleMs;
    this.#cuts = [...this.#cuts, { ageMs, idleMs, atMs }].filter((cut) => this.#fresh(cut)).slice(-MEMORY);
    const idle = repeatedIdle(this.#cuts.slice(-2));
    if (idle !== undefined) this.#limitIdle(idle);
    else this.#limitAge(repeatedAge(this.#cuts));
  }

  #limitIdle(idle: Learned): void {
    const before = this.idleLimitMs;
    const ms = Math.min(idle.ms, before ?? idle.ms);
    this.#idleLimit = { ...idle, ms };
    if (isAlike(before, ms, ALIKE)) return;
    const cure = `pings now come every ${seconds(this.keepaliveMs)}`;
    this.#report("idle_limit", ms, `this path cuts connections that are silent for ${seconds(ms)}: ${cure}`);
  }

  #limitAge(age: Learned | undefined): void {
    const before = this.ageLimitMs;
    this.#ageLimit = age;
    if (age === undefined || isAlike(before, age.ms, SAME_AGE)) return;
    const cure = `each is now replaced after about ${seconds(age.ms * AGE_SHARE)}, which no stream notices`;
    this.#report("age_limit", age.ms, `this path cuts connections that are older than ${seconds(age.ms)}: ${cure}`);
  }

  /** A ping was answered, this time after it was sent. */
  onEcho(ms: number): void {
    this.#echoes = [...this.#echoes, ms].slice(-ECHOES);
    const late = this.#echoes.filter((each) => each >= HELD_BACK_MS);
    if (late.length === 0) this.#heldBackMs = undefined;
    if (late.length < LATE_ECHOES) return;
    const isNew = this.#heldBackMs === undefined;
    this.#heldBackMs = Math.min(...late);
    const cure = "something in between must not buffer, or the line is very slow";
    if (isNew)
      this.#report("held_back", ms, `this path holds bytes back, answers to pings for ${seconds(ms)}: ${cure}`);
  }

  #report(lesson: LessonName, ms: number, sentence: string): void {
    this.onLesson({ lesson, ms, sentence });
  }

  /** A firewall that forgets idle connections says nothing at all: the time is unknown, and found by halving. */
  #onSilence(atMs: number): void {
    if (this.#fresh(this.#silence)) {
      this.#halved = { ms: this.keepaliveMs / 2, atMs };
      const ms = this.keepaliveMs;
      this.#report(
        "silent",
        ms,
        `connections fall silent on this path, without an end: pings now come every ${seconds(ms)}`,
      );
    }
    this.#silence = { atMs };
  }

  #fresh<T extends { readonly atMs: number }>(seen: T | undefined): T | undefined {
    return seen !== undefined && this.#options.now() - seen.atMs < MEMORY_MS ? seen : undefined;
  }
}

function isAlike(one: number | undefined, other: number, factor: number): boolean {
  return one !== undefined && Math.max(one, other) <= factor * Math.min(one, other);
}

/** The silence that both cuts came after. */
function repeatedIdle(cuts: readonly Cut[]): Learned | undefined {
  const [before, last] = cuts;
  if (before === undefined || last === undefined) return undefined;
  const ms = Math.min(before.idleMs, last.idleMs);
  return ms >= LEAST_IDLE_MS && isAlike(before.idleMs, last.idleMs, ALIKE) ? { ms, atMs: last.atMs } : undefined;
}

/** The smallest age that came twice, if no carrier lived clearly longer meanwhile or since, and its last time. */
function repeatedAge(cuts: readonly Cut[]): Learned | undefined {
  const ages = cuts.map(({ ageMs }) => ageMs).filter((ageMs) => ageMs >= LEAST_AGE_MS);
  for (const ms of ages.sort((a, b) => a - b)) {
    const since = cuts.slice(cuts.findLastIndex(({ ageMs }) => ageMs > ms * SAME_AGE) + 1);
    const alike = since.filter(({ ageMs }) => ageMs >= ms);
    if (alike.length > 1) return { ms, atMs: Math.max(...alike.map(({ atMs }) => atMs)) };
  }
  return undefined;
}
