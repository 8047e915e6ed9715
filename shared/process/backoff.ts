/** How long to wait between attempts (design: "Lifecycle"). Pure. */
export interface BackoffOptions {
  readonly baseMs: number;
  readonly capMs: number;
  /** A connection that lived so long was healthy: the next wait starts at the base again. */
  readonly resetAfterMs: number;
  /** Between 0 and 1, as Math.random. */
  readonly random: () => number;
}

export const DEFAULT_BACKOFF: BackoffOptions = {
  baseMs: 250,
  capMs: 30_000,
  resetAfterMs: 60_000,
  random: Math.random,
};

/**
 * So many attempts come within the base each, before the wait doubles: about a second in all, in which a server restarts
 * or a path comes back. A link that is back must not wait for an agent that gave up early (docs/decisions/0005).
 */
const EAGER_ATTEMPTS = 7;

/** A peer may send us away, but not for good. */
const MAX_RETRY_AFTER_MS = 10 * 60_000;

/**
 * The wait before attempt number `attempt` (0 is the first after a loss): full jitter, so that a
 * thousand agents of a restarted server spread over the whole interval. What a server asks for in
 * Retry-After or drain is a floor, and the jitter comes on top of it for the same reason.
 */
export function backoffMs(attempt: number, retryAfterMs = 0, options: Partial<BackoffOptions> = {}): number {
  const { baseMs, capMs, random } = { ...DEFAULT_BACKOFF, ...options };
  // 2 ** 1024 is Infinity, which Math.min brings back under the cap.
  const ceiling = Math.min(capMs, baseMs * 2 ** Math.max(0, attempt - EAGER_ATTEMPTS + 1));
  const floor = Number.isFinite(retryAfterMs) ? Math.min(Math.max(0, retryAfterMs), MAX_RETRY_AFTER_MS) : 0;
  return Math.round(floor + random() * ceiling);
}

/** The number of the next attempt after one that was connected for `healthyMs` (0: it never was). */
export function nextAttempt(attempt: number, healthyMs: number, options: Partial<BackoffOptions> = {}): number {
  return healthyMs >= (options.resetAfterMs ?? DEFAULT_BACKOFF.resetAfterMs) ? 0 : attempt + 1;
}
