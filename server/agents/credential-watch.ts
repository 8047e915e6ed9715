import { MAX_TIMER_MS } from "../../shared/basics/timers.ts";
import { expiredAt, type TokenIdentity, type VerificationResult } from "../tokens/verifier.ts";
import type { ProvenToken } from "../tunnels/links.ts";
import type { Tunnel } from "../tunnels/tunnel.ts";

// The credential of an agent during its tunnel (decision 0022): it ends, and its issuer may take it back.

/** How long before the end the agent is asked, ms: a file that is renewed at the last minute is in time. */
const NOTICE_MS = 60_000;
/** With less time left the agent is not asked again, ms: it spreads its new connections over 2 s. */
const TOO_LATE_MS = 4_000;
/**
 * The longest timer, ms. The clock, by which a certificate ends, can be set; and Node's timers take at most 24 days.
 */
const CHECK_MS = 60_000;

/**
 * Watches the end of an agent's certificate during its tunnel. The agent is asked for a new one in time, and again
 * whenever half of the time that is left has passed. At the end it must have connected with a valid one, or do so when
 * its link is resumed.
 */
export class CertificateWatch {
  readonly #tunnel: Pick<Tunnel, "rotate" | "requireProof">;
  #notAfter: Date;
  #timer: NodeJS.Timeout | undefined;

  constructor(notAfter: Date, tunnel: Pick<Tunnel, "rotate" | "requireProof">) {
    this.#tunnel = tunnel;
    this.#notAfter = notAfter;
    this.#wait();
  }

  /** The agent has connected again with a valid certificate. */
  renewed(notAfter: Date): void {
    this.#notAfter = notAfter;
    this.#wait();
  }

  close(): void {
    clearTimeout(this.#timer);
  }

  get #leftMs(): number {
    return this.#notAfter.getTime() - Date.now();
  }

  #wait(): void {
    clearTimeout(this.#timer);
    const left = this.#leftMs;
    const next = left > TOO_LATE_MS ? Math.max(left - NOTICE_MS, left / 2) : left;
    this.#timer = setTimeout(this.#onTimer, Math.min(Math.max(0, next), CHECK_MS)).unref();
  }

  readonly #onTimer = (): void => {
    const left = this.#leftMs;
    const end = this.#notAfter.toISOString().replace(".000", "");
    if (left <= 0) {
      this.#tunnel.requireProof(`the agent's certificate expired on ${end}`, 0);
      return;
    }
    this.#wait();
    if (left > TOO_LATE_MS && left <= NOTICE_MS) this.#tunnel.rotate(`the agent's certificate expires on ${end}`);
  };
}

// ── tokens ───────────────────────────────────────────────────────────────────────────────────────────────────────────

export interface ScheduleOptions {
  /** Interval of verifications, ms: the account may have been deleted, or the issuer's key withdrawn. */
  readonly everyMs: number;
  /** Time in which an agent has to present a fresh token after it was asked for one, ms. */
  readonly patienceMs: number;
  readonly random?: () => number;
}

const SCHEDULE: ScheduleOptions = { everyMs: 60_000, patienceMs: 10_000 };

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

/** Verifies the token of one link again and again, from its first connection to its end. */
export class TokenWatch {
  readonly #verifier: ProvenToken["verifier"];
  readonly #tunnel: Pick<Tunnel, "rotate" | "destroy">;
  readonly #onUnavailable: (reason: string, detail: string) => void;
  readonly #schedule: ScheduleOptions;
  readonly #closed = new AbortController();
  #token: string;
  #state: TokenState;
  #timer: NodeJS.Timeout | undefined;

  /** `onUnavailable`: the verifier was unavailable; the link goes on. */
  constructor(
    { text, identity, verifier }: ProvenToken,
    tunnel: Pick<Tunnel, "rotate" | "destroy">,
    onUnavailable: (reason: string, detail: string) => void,
    schedule = SCHEDULE,
  ) {
    this.#verifier = verifier;
    this.#tunnel = tunnel;
    this.#onUnavailable = onUnavailable;
    this.#schedule = schedule;
    this.#token = text;
    this.#state = trusted(identity, Date.now(), schedule);
    this.#wait();
  }

  /** Call it when the link goes on over a connection that was admitted with this token, which may be the old one. */
  renewed(token: string, identity: TokenIdentity): void {
    this.#token = token;
    this.#enter(renewed(this.#state, identity, Date.now(), this.#schedule));
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
    if (next.state === "asked" && before.state !== "asked") this.#tunnel.rotate(next.reason);
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
      this.#tunnel.destroy(new Error(state.reason));
    } else if (what === "verify") void this.#verify();
    else this.#enter(asked(expiredAt(new Date(state.expiresAtMs)), Date.now(), this.#schedule));
  };

  async #verify(): Promise<void> {
    const token = this.#token;
    try {
      const result = await this.#verifier.verify(token, { signal: this.#closed.signal });
      // A fresh token that came meanwhile was verified when it came.
      if (token !== this.#token || this.#closed.signal.aborted) return;
      if ("unavailable" in result) this.#onUnavailable(result.unavailable, result.detail);
      this.#enter(verified(this.#state, result, Date.now(), this.#schedule));
    } catch (error) {
      if (!this.#closed.signal.aborted) throw error;
    }
  }
}
