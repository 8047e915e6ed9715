import { expiredAt, type TokenIdentity } from "../tokens/verifier.ts";
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

/** Interval of verifications, ms: the account may have been deleted, or the issuer's key withdrawn. */
const VERIFY_MS = 60_000;
/** Shortest time until the next verification after an unavailable one, ms. */
const MIN_RETRY_MS = 1_000;
/** Time in which an agent has to present a fresh token after it was asked for one, ms. */
const PATIENCE_MS = 10_000;

/**
 * An agent of culvert is asked for a fresh token, and no stream notices. A konnectivity-agent reads its file when it
 * connects, and its streams end with its connection: so it has to connect again at a moment without any.
 */
type WhenExpired = "asked" | "renewedWhenIdle";

/**
 * Verifies the token of one link repeatedly, from its first connection to its end.
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
export class TokenWatch {
  readonly #verifier: ProvenToken["verifier"];
  readonly #tunnel: Pick<Tunnel, "rotate" | "destroy">;
  readonly #onUnavailable: (reason: string, detail: string) => void;
  readonly #whenExpired: WhenExpired;
  readonly #closed = new AbortController();
  #token: string;
  #expiresAtMs = 0;
  #verifyAtMs = 0;
  /** Present while the agent is asked for a fresh token: when the link ends, and why. */
  #end: { readonly atMs: number; readonly reason: string } | undefined;
  #timer: NodeJS.Timeout | undefined;

  /** `onUnavailable`: the verifier was unavailable; the link stays. */
  constructor(
    { text, identity, verifier }: ProvenToken,
    tunnel: Pick<Tunnel, "rotate" | "destroy">,
    onUnavailable: (reason: string, detail: string) => void,
    whenExpired: WhenExpired = "asked",
  ) {
    this.#verifier = verifier;
    this.#tunnel = tunnel;
    this.#onUnavailable = onUnavailable;
    this.#whenExpired = whenExpired;
    this.#token = text;
    this.#trust(identity);
  }

  /** Call it when the link resumes over a connection that was admitted with this token, which may be the old one. */
  renewed(token: string, identity: TokenIdentity): void {
    this.#token = token;
    const isFresh = identity.expiresAt.getTime() > Date.now();
    if (this.#end === undefined || isFresh) this.#trust(identity);
  }

  close(): void {
    this.#closed.abort();
    clearTimeout(this.#timer);
  }

  #trust({ expiresAt }: TokenIdentity): void {
    this.#end = undefined;
    this.#expiresAtMs = expiresAt.getTime();
    // Jitter, because after a restart of this server all agents come at once.
    this.#verifyAtMs = Date.now() + VERIFY_MS * (0.8 + 0.2 * Math.random());
    this.#wait();
  }

  #ask(reason: string): void {
    this.#end = { atMs: Date.now() + PATIENCE_MS, reason };
    this.#wait();
    this.#tunnel.rotate(reason);
  }

  #wait(): void {
    clearTimeout(this.#timer);
    if (this.#closed.signal.aborted) return;
    const atMs = this.#end?.atMs ?? Math.min(this.#expiresAtMs, this.#verifyAtMs);
    this.#timer = setTimeout(this.#onTimer, Math.max(0, atMs - Date.now())).unref();
  }

  readonly #onTimer = (): void => {
    const now = Date.now();
    if (this.#end !== undefined && now >= this.#end.atMs) {
      this.close();
      this.#tunnel.destroy(new Error(this.#end.reason));
    } else if (this.#end === undefined && now >= this.#expiresAtMs) this.#onExpired();
    else if (this.#end === undefined && now >= this.#verifyAtMs) void this.#verify();
    else this.#wait();
  };

  #onExpired(): void {
    const reason = expiredAt(new Date(this.#expiresAtMs));
    if (this.#whenExpired === "asked") {
      this.#ask(reason);
      return;
    }
    this.close(); // an expired token cannot be verified again
    this.#tunnel.rotate(reason);
  }

  async #verify(): Promise<void> {
    const token = this.#token;
    const { signal } = this.#closed;
    try {
      const result = await this.#verifier.verify(token, { signal });
      // A fresh token that came meanwhile was verified when it came.
      if (token !== this.#token || this.#end !== undefined || signal.aborted) return;
      if ("refused" in result) this.#ask(result.refused);
      else if ("ok" in result) this.#trust(result.ok);
      else {
        this.#onUnavailable(result.unavailable, result.detail);
        this.#verifyAtMs = Date.now() + Math.max(result.retryAfterMs, MIN_RETRY_MS);
        this.#wait();
      }
    } catch (error) {
      if (!signal.aborted) throw error;
    }
  }
}
