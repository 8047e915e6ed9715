import { seconds } from "../../shared/basics/text.ts";
import type { LossFacts } from "../../shared/link/link-events.ts";
import type { LearnedPath, LessonName } from "../context/metrics.ts";

export interface PathOptions {
  /** A carrier is replaced at this age, ms; 0: only where the path has shown a limit. */
  readonly maxCarrierAgeMs: number;
  readonly random?: () => number;
  /** A clock that only goes forward, ms. */
  readonly now?: () => number;
}

// ── cuts: how many count, and when two of them show a limit ─────────────────────────────────────────────────────────

/** The newest cuts count, and only those of the last day, as does the limit learned from them: paths change. */
const MEMORY = 8;
const MEMORY_MS = 24 * 3_600_000;
/** Two cuts are at the same age when their ages differ by no more than this factor. */
const SAME_AGE = 1.1;
/** A connection that was silent for this part of its life when it was cut was cut for its silence, and not its age. */
const SILENT_PART = 0.5;
/** Nobody configures a shorter limit: such cuts come from a server that restarts, or from a test. */
const MIN_AGE_MS = 5_000;
/** A learned age is used for this many times its length: if it is wrong, each use costs a connection. */
const HOLDS_FOR_TIMES = 100;

// ── cure: how far the agent stays under a limit ─────────────────────────────────────────────────────────────────────

/** The part of an age limit at which a carrier is replaced, and how far carriers differ in it. */
const AGE_SHARE = 0.8;
const JITTER = 0.1;

// ── echoes: when a path holds bytes back ────────────────────────────────────────────────────────────────────────────

/** No line is so long that an answer to a ping takes this; something holds it back. */
const HELD_BACK_MS = 1_000;
/** Number of the last few answers that must be this late: a single one may have waited behind a bulk transfer. */
const LATE_ECHOES = 3;
const ECHOES = 4;

interface Cut {
  readonly ageMs: number;
  /** It may have come for the age. */
  readonly isOfAge: boolean;
  readonly atMs: number;
}

/** An age limit that the path has shown, and when it was last seen. */
interface Learned {
  readonly ms: number;
  readonly atMs: number;
}

/** Something that was not known of a path before. */
export interface Lesson {
  readonly lesson: LessonName;
  /** The limit, or the time that is new. */
  readonly ms: number;
  /** The lesson, and how the agent reacts to it. */
  readonly sentence: string;
}

/**
 * The facts that an agent has learned about the network path to one server: how old a connection may get on it, and
 * whether it holds bytes back. Balancers, proxies and firewalls do not announce such a limit. A limit is kept in memory
 * for a day after it was last seen: to learn it anew costs two cuts, which no stream notices. Pure.
 */
export class Path implements LearnedPath {
  /** The last dial found a middlebox that ends TLS. */
  intercepted = false;
  /** Called for each new lesson. */
  onLesson: (lesson: Lesson) => void = () => {};
  readonly #options: Required<PathOptions>;
  /** The newest is the last. */
  #cuts: Cut[] = [];
  #ageLimit: Learned | undefined;
  /** The newest is the last. */
  #echoes: number[] = [];
  #heldBackMs: number | undefined;

  constructor(options: PathOptions) {
    this.#options = { random: Math.random, now: () => performance.now(), ...options };
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
  onLost({ lossCause, ageMs, idleMs }: LossFacts): void {
    if (lossCause === "silent") return;
    const atMs = this.#options.now();
    const isOfAge = ageMs >= MIN_AGE_MS && idleMs <= ageMs * SILENT_PART;
    this.#cuts = [...this.#cuts, { ageMs, isOfAge, atMs }].filter((cut) => this.#fresh(cut)).slice(-MEMORY);
    const before = this.ageLimitMs;
    const age = repeatedAge(this.#cuts);
    this.#ageLimit = age;
    if (age === undefined || isSameAge(before, age.ms)) return;
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

  #fresh<T extends { readonly atMs: number }>(seen: T | undefined): T | undefined {
    return seen !== undefined && this.#options.now() - seen.atMs < MEMORY_MS ? seen : undefined;
  }
}

function isSameAge(one: number | undefined, other: number): boolean {
  return one !== undefined && Math.max(one, other) <= SAME_AGE * Math.min(one, other);
}

/** The smallest age that came twice, if no carrier lived clearly longer meanwhile or since, and its last time. */
function repeatedAge(cuts: readonly Cut[]): Learned | undefined {
  const ages = cuts.filter(({ isOfAge }) => isOfAge).map(({ ageMs }) => ageMs);
  for (const ms of ages.sort((a, b) => a - b)) {
    const since = cuts.slice(cuts.findLastIndex(({ ageMs }) => ageMs > ms * SAME_AGE) + 1);
    const alike = since.filter(({ ageMs, isOfAge }) => isOfAge && ageMs >= ms);
    if (alike.length > 1) return { ms, atMs: Math.max(...alike.map(({ atMs }) => atMs)) };
  }
  return undefined;
}
