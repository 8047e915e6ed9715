import { createHash } from "node:crypto";
import { BySource } from "../../shared/basics/by-source.ts";
import { untilAborted } from "../../shared/basics/promises.ts";
import { TokenBuckets } from "../../shared/basics/rate-limit.ts";
import { RecentMap } from "../../shared/basics/recent-map.ts";
import type { VerificationResult } from "./verifier.ts";

/** A fresh verdict, and until when it may be given again, ms since the epoch. */
export interface Judged {
  readonly verdict: VerificationResult;
  readonly keepUntilMs: number;
}

export interface VerdictsOptions {
  /** Verdicts of each kind, good ones and refusals, that are kept; one more drops the oldest of its kind. */
  readonly maxKept: number;
  /**
   * Tokens of peers that are asked about at once. One more drops the question of the network that has most, and its
   * peer is told to come back. Tokens of tunnels that stand are not among them.
   */
  readonly maxAsked: number;
}

export const VERDICTS: VerdictsOptions = { maxKept: 4_096, maxAsked: 64 };

/**
 * Questions of one network: as many at once as agents of a cluster may come from behind one address after its path was
 * cut (`--max-agents`), and as many a second as client-go lets one client ask of an API server.
 */
const OF_A_NETWORK = { burst: 100, perSecond: 50 };

/** Longest time until a token that was withdrawn is noticed, ms: its account was deleted, or its issuer's key. */
const MAX_KEEP_MS = 60_000;
/** A refusal can be mended (an account created, a role bound), and who is told no comes back slowly. */
const KEEP_REFUSAL_MS = 10_000;

/** Until when a verdict that was found now may be given again, ms since the epoch; `keepMs`: at most so long. */
export function keptUntil(verdict: VerificationResult, keepMs = MAX_KEEP_MS): number {
  if ("unavailable" in verdict) return 0;
  if ("refused" in verdict) return Date.now() + KEEP_REFUSAL_MS;
  return Math.min(Date.now() + Math.min(keepMs, MAX_KEEP_MS), verdict.ok.expiresAt.getTime());
}

/** Another verdict is found in so long, ms: whoever is dropped may come back then. */
const CROWDED_RETRY_MS = 1_000;

/** A question that has no answer yet. */
interface Question {
  readonly dropped: AbortController;
  readonly answer: Promise<VerificationResult>;
}

/**
 * Verdicts of a moment ago, and those that are asked for now: one question for any number who send the same token. A
 * flood of tokens that are none takes neither the kept verdicts of good ones nor the questions of tunnels that stand.
 */
export class Verdicts {
  readonly #maxAsked: number;
  readonly #good: Kept;
  readonly #refused: Kept;
  readonly #budget = new TokenBuckets(OF_A_NETWORK);
  readonly #asked = new Map<string, Question>();
  /** Those of them that a network waits for. */
  readonly #ofPeers = new BySource<AbortController>();

  constructor({ maxKept, maxAsked }: VerdictsOptions) {
    this.#maxAsked = maxAsked;
    this.#good = new Kept(maxKept);
    this.#refused = new Kept(maxKept);
  }

  /** `network`: where the token came from; `undefined`: it belongs to a tunnel that stands. */
  of(
    token: string,
    network: string | undefined,
    judge: (dropped: AbortSignal) => Promise<Judged>,
  ): Promise<VerificationResult> {
    // A dump of this process shows no token from here.
    const digest = createHash("sha256").update(token).digest("base64");
    const kept = this.#good.get(digest) ?? this.#refused.get(digest);
    if (kept !== undefined) return Promise.resolve(kept);
    const asked = this.#asked.get(digest);
    if (asked !== undefined) return asked.answer;
    const waitMs = network === undefined ? 0 : this.#budget.take(network);
    if (waitMs > 0) return Promise.resolve(crowded("its network has sent too many tokens", waitMs));
    const dropped = new AbortController();
    if (network !== undefined) this.#ofPeers.add(dropped, network);
    const answer = this.#ask(digest, dropped, judge);
    this.#asked.set(digest, { dropped, answer });
    if (this.#ofPeers.size > this.#maxAsked) this.#ofPeers.oldestOfFullest?.abort();
    return answer;
  }

  /** What was found before counts no more. */
  forget(): void {
    this.#good.clear();
    this.#refused.clear();
  }

  async #ask(
    digest: string,
    dropped: AbortController,
    judge: (dropped: AbortSignal) => Promise<Judged>,
  ): Promise<VerificationResult> {
    const leave = (): void => void this.#ofPeers.delete(dropped);
    dropped.signal.addEventListener("abort", leave);
    try {
      const { verdict, keepUntilMs } = await untilAborted(judge(dropped.signal), dropped.signal);
      if ("ok" in verdict) this.#good.set(digest, verdict, keepUntilMs);
      else this.#refused.set(digest, verdict, keepUntilMs);
      return verdict;
    } catch (error) {
      if (!dropped.signal.aborted) throw error;
      return crowded(`${this.#maxAsked} are asked about now`, CROWDED_RETRY_MS);
    } finally {
      leave();
      this.#asked.delete(digest);
    }
  }
}

/** Verdicts by the digest of their token, the oldest first. */
class Kept {
  readonly #verdicts: RecentMap<string, Judged>;

  constructor(most: number) {
    this.#verdicts = new RecentMap(most);
  }

  get(digest: string): VerificationResult | undefined {
    const kept = this.#verdicts.get(digest);
    if (kept !== undefined && kept.keepUntilMs > Date.now()) return kept.verdict;
    this.#verdicts.delete(digest);
    return undefined;
  }

  set(digest: string, verdict: VerificationResult, keepUntilMs: number): void {
    if (keepUntilMs > Date.now()) this.#verdicts.set(digest, { verdict, keepUntilMs });
  }

  clear(): void {
    this.#verdicts.clear();
  }
}

function crowded(detail: string, retryAfterMs: number): VerificationResult {
  return { unavailable: "more tokens are to be judged than this server has time for", detail, retryAfterMs };
}
