import { createHash } from "node:crypto";
import type { Verdict } from "./verifier.ts";

/** A fresh verdict, and until when it may be given again, ms since the epoch. */
export interface Judged {
  readonly verdict: Verdict;
  readonly keepUntilMs: number;
}

export interface VerdictsOptions {
  /** Verdicts kept at once; one more drops the oldest. */
  readonly maxKept: number;
  /** Tokens looked at by others at once. One more is told to come back: strangers have any number of them. */
  readonly maxAsked: number;
}

const CROWDED_RETRY_MS = 1_000;

/** Verdicts of a moment ago, and those that are asked for now: one question for any number who send the same token. */
export class Verdicts {
  readonly #options: VerdictsOptions;
  readonly #kept = new Map<string, Judged>();
  readonly #asked = new Map<string, Promise<Verdict>>();

  constructor(options: VerdictsOptions) {
    this.#options = options;
  }

  of(token: string, judge: () => Promise<Judged>): Promise<Verdict> {
    // A dump of this process shows no token from here.
    const digest = createHash("sha256").update(token).digest("base64");
    const kept = this.#kept.get(digest);
    if (kept !== undefined && kept.keepUntilMs > Date.now()) return Promise.resolve(kept.verdict);
    this.#kept.delete(digest);
    const asked = this.#asked.get(digest);
    if (asked !== undefined) return asked;
    if (this.#asked.size >= this.#options.maxAsked) return Promise.resolve(crowded(this.#asked.size));
    const asking = this.#ask(digest, judge);
    this.#asked.set(digest, asking);
    return asking;
  }

  async #ask(digest: string, judge: () => Promise<Judged>): Promise<Verdict> {
    try {
      const judged = await judge();
      if (judged.keepUntilMs > Date.now()) this.#keep(digest, judged);
      return judged.verdict;
    } finally {
      this.#asked.delete(digest);
    }
  }

  #keep(digest: string, judged: Judged): void {
    if (this.#kept.size >= this.#options.maxKept) this.#kept.delete(this.#kept.keys().next().value ?? "");
    this.#kept.set(digest, judged);
  }
}

function crowded(asked: number): Verdict {
  const unavailable = "more tokens are to be judged at once than this server has time for";
  return { unavailable, detail: `${asked} are asked about now`, retryAfterMs: CROWDED_RETRY_MS };
}
