import { MAX_TIMER_MS } from "../../shared/basics/timers.ts";
import { expiredAt, type TokenIdentity, type TokenVerifier, type VerificationResult } from "./verifier.ts";

export interface ScheduleOptions {
  /** Interval of verifications, ms: the account may have been deleted, or the issuer's key withdrawn. */
  readonly everyMs: number;
  /** Time in which an agent has to present a fresh token, ms. */
  readonly patienceMs: number;
  readonly random?: () => number;
}

/**
 * What is known of the token of a link.
 *
 * ```
 *             verified: ok, or unavailable
 *                   ┌──────┐
 *  admitted ─────▶ trusted ◀──────── a fresh token (the next carrier)
 *                   │                        ▲
 *                   │ verified: refused      │
 *                   └─ expired ──────────▶ asked ─── patience is over ───▶ end of the link
 * ```
 */
export type TokenState =
  | { readonly state: "trusted"; readonly expiresAtMs: number; readonly verifyAtMs: number }
  | { readonly state: "asked"; readonly reason: string; readonly endAtMs: number };

/** The next step for a link, and its time. */
export interface NextStep {
  readonly what: "verify" | "ask" | "end";
  readonly atMs: number;
}

/** Shortest time until the next verification after an unavailable one, ms. */
const MIN_RETRY_MS = 1_000;

/** The state after a token was verified, for a new link or for a new connection of one. */
export function trusted({ expiresAt }: TokenIdentity, nowMs: number, options: ScheduleOptions): TokenState {
  const { everyMs, random = Math.random } = options;
  // Jitter, because after a restart of this server all agents come at once.
  const verifyAtMs = nowMs + everyMs * (0.8 + 0.2 * random());
  return { state: "trusted", expiresAtMs: expiresAt.getTime(), verifyAtMs };
}

/** The state after a new connection of the link was admitted with this token. An expired token is no fresh one. */
export function renewed(
  state: TokenState,
  identity: TokenIdentity,
  nowMs: number,
  options: ScheduleOptions,
): TokenState {
  const isExpired = identity.expiresAt.getTime() <= nowMs;
  return state.state === "asked" && isExpired ? state : trusted(identity, nowMs, options);
}

/** The state after the agent was asked for another token. */
export function asked(reason: string, nowMs: number, { patienceMs }: ScheduleOptions): TokenState {
  return { state: "asked", reason, endAtMs: nowMs + patienceMs };
}

/** The state after the present token was verified again. An unavailable verifier does not end a link that was good. */
export function verified(
  state: TokenState,
  result: VerificationResult,
  nowMs: number,
  options: ScheduleOptions,
): TokenState {
  if (state.state === "asked") return state;
  if ("refused" in result) return asked(result.refused, nowMs, options);
  if ("unavailable" in result) return { ...state, verifyAtMs: nowMs + Math.max(result.retryAfterMs, MIN_RETRY_MS) };
  return trusted(result.ok, nowMs, options);
}

export function nextStep(state: TokenState): NextStep {
  if (state.state === "asked") return { what: "end", atMs: state.endAtMs };
  const { expiresAtMs, verifyAtMs } = state;
  return expiresAtMs <= verifyAtMs ? { what: "ask", atMs: expiresAtMs } : { what: "verify", atMs: verifyAtMs };
}

/** The owner of the link. */
export interface TokenWatchOwner {
  /** Asks the agent to resume with a new connection, and so with a fresh token. */
  onAsk(reason: string): void;
  /** No fresh token came in time, and the link is to end. Called once, last. */
  onTimeout(reason: string): void;
  /** The verifier was unavailable; the link goes on. */
  onUnavailable(reason: string, detail: string): void;
}

export interface TokenWatchOptions extends ScheduleOptions {
  readonly verifier: Pick<TokenVerifier, "verify">;
}

/** Verifies the token of one link again and again, from its first connection to its end. */
export class TokenWatch {
  readonly #options: TokenWatchOptions;
  readonly #owner: TokenWatchOwner;
  readonly #closed = new AbortController();
  #token: string;
  #state: TokenState;
  #timer: NodeJS.Timeout | undefined;

  constructor(token: string, identity: TokenIdentity, owner: TokenWatchOwner, options: TokenWatchOptions) {
    this.#options = options;
    this.#owner = owner;
    this.#token = token;
    this.#state = trusted(identity, Date.now(), options);
    this.#wait();
  }

  /** Call it when the link goes on over a connection that was admitted with this token, which may be the old one. */
  renewed(token: string, identity: TokenIdentity): void {
    this.#token = token;
    this.#enter(renewed(this.#state, identity, Date.now(), this.#options));
  }

  close(): void {
    this.#closed.abort();
    clearTimeout(this.#timer);
  }

  #enter(next: TokenState): void {
    const before = this.#state;
    this.#state = next;
    if (this.#closed.signal.aborted) return;
    this.#wait();
    if (next.state === "asked" && before.state !== "asked") this.#owner.onAsk(next.reason);
  }

  #wait(): void {
    clearTimeout(this.#timer);
    const { atMs } = nextStep(this.#state);
    const waitMs = Math.min(Math.max(0, atMs - Date.now()), MAX_TIMER_MS);
    this.#timer = setTimeout(this.#onTimer, waitMs).unref();
  }

  readonly #onTimer = (): void => {
    const state = this.#state;
    const { what, atMs } = nextStep(state);
    if (atMs > Date.now()) this.#wait();
    else if (state.state === "asked") {
      this.close();
      this.#owner.onTimeout(state.reason);
    } else if (what === "verify") void this.#verify();
    else this.#enter(asked(expiredAt(new Date(state.expiresAtMs)), Date.now(), this.#options));
  };

  async #verify(): Promise<void> {
    const token = this.#token;
    try {
      const result = await this.#options.verifier.verify(token, { signal: this.#closed.signal });
      // A fresh token that came meanwhile was verified when it came.
      if (token !== this.#token || this.#closed.signal.aborted) return;
      if ("unavailable" in result) this.#owner.onUnavailable(result.unavailable, result.detail);
      this.#enter(verified(this.#state, result, Date.now(), this.#options));
    } catch (error) {
      if (!this.#closed.signal.aborted) throw error;
    }
  }
}
