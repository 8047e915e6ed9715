import type { TokenIdentity, VerificationResult } from "./verifier.ts";

export interface ScheduleOptions {
  /** A token is judged again so often, ms: its account may have been deleted, its issuer's key withdrawn. */
  readonly everyMs: number;
  /** An agent that is asked for a fresh token has so long to come with one, ms. */
  readonly patienceMs: number;
  readonly random?: () => number;
}

/**
 * What is believed of a link whose agent proved itself by a token.
 *
 * ```
 *             judged: ok, or nobody can say
 *                   ┌──────┐
 *  admitted ─────▶ trusted ◀──────── a fresh token (the next carrier)
 *                   │                        ▲
 *                   │ judged: refused        │
 *                   └─ at its end ─────▶ asked ─── patience is over ───▶ cut
 * ```
 */
export type Standing =
  | { readonly state: "trusted"; readonly expiresAtMs: number; readonly judgeAtMs: number }
  | { readonly state: "asked"; readonly reason: string; readonly cutAtMs: number };

/** What is to be done with the link next, and when. */
export interface Due {
  readonly what: "judge" | "ask" | "cut";
  readonly atMs: number;
}

/** A token was found good just now: at the first connection, or at one that a link goes on with. */
export function trusted({ expiresAt }: TokenIdentity, nowMs: number, options: ScheduleOptions): Standing {
  const { everyMs, random = Math.random } = options;
  // Agents that came together, after a restart of this server, are not judged together for ever after.
  const judgeAtMs = nowMs + everyMs * (0.8 + 0.2 * random());
  return { state: "trusted", expiresAtMs: expiresAt.getTime(), judgeAtMs };
}

/** The link goes on over a connection that was admitted with this token; one that has ended is not what was asked for. */
export function renewed(
  standing: Standing,
  identity: TokenIdentity,
  nowMs: number,
  options: ScheduleOptions,
): Standing {
  const isOld = identity.expiresAt.getTime() <= nowMs;
  return standing.state === "asked" && isOld ? standing : trusted(identity, nowMs, options);
}

/** The agent is asked for another token. */
export function asked(reason: string, nowMs: number, { patienceMs }: ScheduleOptions): Standing {
  return { state: "asked", reason, cutAtMs: nowMs + patienceMs };
}

/** The same token was judged again. That nobody can say is no reason to cut a link that was fine a minute ago. */
export function judged(
  standing: Standing,
  verdict: VerificationResult,
  nowMs: number,
  options: ScheduleOptions,
): Standing {
  if (standing.state === "asked") return standing;
  if ("refused" in verdict) return asked(verdict.refused, nowMs, options);
  if ("unavailable" in verdict) return { ...standing, judgeAtMs: nowMs + Math.max(verdict.retryAfterMs, MIN_RETRY_MS) };
  return trusted(verdict.ok, nowMs, options);
}

/** Whatever the one we ask says about when to come back. */
const MIN_RETRY_MS = 1_000;

export function due(standing: Standing): Due {
  if (standing.state === "asked") return { what: "cut", atMs: standing.cutAtMs };
  const { expiresAtMs, judgeAtMs } = standing;
  return expiresAtMs <= judgeAtMs ? { what: "ask", atMs: expiresAtMs } : { what: "judge", atMs: judgeAtMs };
}
