/** The waits of one relation to a peer. */
export interface RetryOptions {
  /** Longest wait after the first failures; then it doubles with each failure, up to `capMs`. */
  readonly baseMs: number;
  readonly capMs: number;
  /** Between 0 and 1; absent: Math.random. */
  readonly random?: () => number;
}

/** A count of failures at which the jitter of `backoffMs` has its whole width. */
export const MANY_FAILURES = 64;

export const DEFAULT_BACKOFF: RetryOptions = { baseMs: 250, capMs: 30_000 };

/**
 * Number of attempts that wait for at most `baseMs` each, before the wait doubles: about a second in all, in which a
 * server restarts or a path comes back (docs/decisions/0005).
 */
const EAGER_ATTEMPTS = 7;

/** `Backoff` counts the loss of a connection that lived for this time, ms, as the first one. */
const HEALTHY_LIFE_MS = 60_000;

/**
 * A connection that lived for this time, ms, and was closed cleanly by its peer is no failure: peers restart one after
 * the other. A connection that was closed sooner is a failure, or a peer that accepts and closes at once would be
 * dialled in a loop.
 */
export const ORDERLY_LIFE_MS = 1_000;

/** A peer may ask us to wait, but not for ever. */
const MAX_RETRY_AFTER_MS = 10 * 60_000;

/**
 * The wait before attempt number `attempt` (0 is the first after a loss), ms: full jitter, so that a thousand agents of
 * a restarted server spread over the whole interval. The wait that a server asks for in Retry-After or drain is added
 * to it.
 */
export function backoffMs(attempt: number, retryAfterMs = 0, options: Partial<RetryOptions> = {}): number {
  const { baseMs, capMs, random = Math.random } = { ...DEFAULT_BACKOFF, ...options };
  // 2 ** 1024 is Infinity, which Math.min brings back under the cap.
  const ceiling = Math.min(capMs, baseMs * 2 ** Math.max(0, attempt - EAGER_ATTEMPTS + 1));
  const floor = Number.isFinite(retryAfterMs) ? Math.min(Math.max(0, retryAfterMs), MAX_RETRY_AFTER_MS) : 0;
  return Math.round(floor + random() * ceiling);
}

/** How a connection ended: its peer asked us to leave or closed it cleanly, or it was lost. */
type Ending = "clean" | "lost";

/** Counts the failures of one relation to a peer, and says how long to wait before the next attempt. */
export class Backoff {
  readonly #options: Partial<RetryOptions>;
  readonly #healthyLifeMs: number;
  /**
   * Connections in a row that did not last. Unlike failed attempts, they are not forgotten at the next welcome, or a
   * peer that accepts and closes at once would be dialled in a loop.
   */
  #shortLives = 0;
  #failures = 0;

  /** A connection that lived for `healthyLifeMs` was healthy: its loss is counted as the first. */
  constructor(options: Partial<RetryOptions> = {}, healthyLifeMs = HEALTHY_LIFE_MS) {
    this.#options = options;
    this.#healthyLifeMs = healthyLifeMs;
  }

  /** Short lives, and the attempts that failed since the last of them. */
  get failures(): number {
    return this.#failures;
  }

  attemptFailed(): void {
    this.#failures++;
  }

  connected(): void {
    this.#failures = this.#shortLives;
  }

  ended(ending: Ending, livedMs: number): void {
    if (ending === "clean") this.#shortLives = livedMs >= ORDERLY_LIFE_MS ? 0 : this.#shortLives + 1;
    else this.#shortLives = livedMs >= this.#healthyLifeMs ? 1 : this.#shortLives + 1;
    this.#failures = this.#shortLives;
  }

  /** The wait after the last failure, ms. */
  waitMs(askedMs = 0, options: Partial<RetryOptions> = {}): number {
    return backoffMs(this.#failures - 1, askedMs, { ...this.#options, ...options });
  }
}
