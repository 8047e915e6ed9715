import { asked, due, judged, renewed, type ScheduleOptions, type Standing, trusted } from "./schedule.ts";
import { expiredAt, type TokenIdentity, type TokenVerifier } from "./verifier.ts";

/** Who holds the link. */
export interface TokenWatchOwner {
  /** Ask the agent to go on with a new connection, and so with a fresh token. */
  onAsk(reason: string): void;
  /** It did not come with one: the link is to end. Called once, last. */
  onCut(reason: string): void;
  /** Nobody can say now whether the token is still good; the link goes on. */
  onUnavailable(reason: string, detail: string): void;
}

export interface TokenWatchOptions extends ScheduleOptions {
  readonly verifier: Pick<TokenVerifier, "verify">;
}

/** The longest time that a timer of Node takes. */
const MAX_TIMER_MS = 2 ** 31 - 1;

/** Watches over the token of one link, from its first connection to its end. */
export class TokenWatch {
  readonly #options: TokenWatchOptions;
  readonly #owner: TokenWatchOwner;
  readonly #closed = new AbortController();
  #token: string;
  #standing: Standing;
  #timer: NodeJS.Timeout | undefined;

  constructor(token: string, identity: TokenIdentity, owner: TokenWatchOwner, options: TokenWatchOptions) {
    this.#options = options;
    this.#owner = owner;
    this.#token = token;
    this.#standing = trusted(identity, Date.now(), options);
    this.#wait();
  }

  /** The link goes on over a connection that was admitted with this token, which may be the old one. */
  renewed(token: string, identity: TokenIdentity): void {
    this.#token = token;
    this.#enter(renewed(this.#standing, identity, Date.now(), this.#options));
  }

  close(): void {
    this.#closed.abort();
    clearTimeout(this.#timer);
  }

  #enter(next: Standing): void {
    const before = this.#standing;
    this.#standing = next;
    if (this.#closed.signal.aborted) return;
    this.#wait();
    if (next.state === "asked" && before.state !== "asked") this.#owner.onAsk(next.reason);
  }

  #wait(): void {
    clearTimeout(this.#timer);
    const { atMs } = due(this.#standing);
    const waitMs = Math.min(Math.max(0, atMs - Date.now()), MAX_TIMER_MS);
    this.#timer = setTimeout(this.#onTimer, waitMs).unref();
  }

  readonly #onTimer = (): void => {
    const standing = this.#standing;
    const { what, atMs } = due(standing);
    if (atMs > Date.now()) this.#wait();
    else if (standing.state === "asked") {
      this.close();
      this.#owner.onCut(standing.reason);
    } else if (what === "judge") void this.#judge();
    else this.#enter(asked(expiredAt(new Date(standing.expiresAtMs)), Date.now(), this.#options));
  };

  async #judge(): Promise<void> {
    const token = this.#token;
    try {
      const verdict = await this.#options.verifier.verify(token, { signal: this.#closed.signal });
      // A fresh token that came meanwhile was judged when it came.
      if (token !== this.#token || this.#closed.signal.aborted) return;
      if ("unavailable" in verdict) this.#owner.onUnavailable(verdict.unavailable, verdict.detail);
      this.#enter(judged(this.#standing, verdict, Date.now(), this.#options));
    } catch (error) {
      if (!this.#closed.signal.aborted) throw error;
    }
  }
}
