export interface BackoffOptions {
  readonly baseMs: number;
  readonly capMs: number;
  /** Between 0 and 1, as Math.random. */
  readonly random: () => number;
}

export const DEFAULT_BACKOFF: BackoffOptions = {
  baseMs: 250,
  capMs: 30_000,
  random: Math.random,
};

/**
 * So many attempts wait for at most `baseMs` each before the wait doubles: about a second in all, in which a server
 * restarts or a path comes back (docs/decisions/0005).
 */
const EAGER_ATTEMPTS = 7;

/** A connection that lived so long, ms, was healthy: its loss is counted as the first, whatever came before. */
const HEALTHY_LIFE_MS = 60_000;

/**
 * A connection that lived so long, ms, and was closed in order by its peer is no failure: peers restart one after the
 * other. One that was closed sooner is a failure, or a peer that accepts and closes at once would be dialled in a
 * loop.
 */
export const ORDERLY_LIFE_MS = 1_000;

/** A peer may ask us to wait, but not for ever. */
const MAX_RETRY_AFTER_MS = 10 * 60_000;

/**
 * The wait before attempt number `attempt` (0 is the first after a loss), ms: full jitter, so that a thousand agents
 * of a restarted server spread over the whole interval. What a server asks for in Retry-After or drain is added to it.
 */
export function backoffMs(attempt: number, retryAfterMs = 0, options: Partial<BackoffOptions> = {}): number {
  const { baseMs, capMs, random } = { ...DEFAULT_BACKOFF, ...options };
  // 2 ** 1024 is Infinity, which Math.min brings back under the cap.
  const ceiling = Math.min(capMs, baseMs * 2 ** Math.max(0, attempt - EAGER_ATTEMPTS + 1));
  const floor = Number.isFinite(retryAfterMs) ? Math.min(Math.max(0, retryAfterMs), MAX_RETRY_AFTER_MS) : 0;
  return Math.round(floor + random() * ceiling);
}

/** How a connection ended: its peer asked us to leave or closed it in order, or it was lost. */
export type Ending = "in order" | "lost";

/**
 * How many connections in a row have not lasted, this one included. Unlike failed attempts, they are not forgotten at
 * the next welcome, or a peer that accepts and closes at once would be dialled in a loop.
 */
export function shortLivesAfter(before: number, ending: Ending, livedMs: number): number {
  if (ending === "in order") return livedMs >= ORDERLY_LIFE_MS ? 0 : before + 1;
  return livedMs >= HEALTHY_LIFE_MS ? 1 : before + 1;
}
