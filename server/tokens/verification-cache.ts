import { createHash } from "node:crypto";
import { RecentMap } from "../../shared/basics/collections.ts";
import { untilAborted } from "../../shared/basics/promises.ts";
import { TokenBuckets } from "../../shared/basics/rate-limit.ts";
import { CulvertError } from "../../shared/outcomes.ts";
import { CROWDED_RETRY_MS, type VerificationResult, VerificationSlots, type VerifyContext } from "./verifier.ts";

interface VerificationCacheOptions {
  /** Maximum number of good results, and of refusals; one more drops the oldest of its kind. */
  readonly maxKept?: number;
  /**
   * Maximum number of tokens of peers that are verified at once. A further one drops the oldest of the network that has
   * most, whose peer is asked to come back. Tokens of open tunnels do not count.
   */
  readonly maxPending?: number;
}

type Verify = (dropped: AbortSignal) => Promise<VerificationResult>;

/**
 * Verifications for one network: a burst of as many as agents of a cluster may come from behind one address after its
 * path was lost (`--max-agents`), and as many a second as client-go lets one client ask of an API server.
 */
const PER_NETWORK = { burst: 100, perSecond: 50 };

/** Longest time until a withdrawn token is noticed, ms: its account or its issuer's key was deleted. */
const MAX_KEEP_MS = 60_000;
/** Refusals are kept shorter, ms, because a created account or a bound role ends their cause. */
const KEEP_REFUSAL_MS = 10_000;

/**
 * Results of recent verifications, and one verification in progress for all who present the same token. A flood of
 * invalid tokens displaces neither good results nor the verifications of open tunnels.
 */
export class VerificationCache {
  readonly #maxPending: number;
  readonly #good: ResultMap;
  readonly #refused: ResultMap;
  readonly #budget = new TokenBuckets(PER_NETWORK);
  /** Verifications in progress. */
  readonly #pending = new Map<string, Promise<VerificationResult>>();
  /** Verifications in progress that peers wait for. */
  readonly #slots = new VerificationSlots();

  constructor({ maxKept = 4_096, maxPending = 64 }: VerificationCacheOptions = {}) {
    this.#maxPending = maxPending;
    this.#good = new ResultMap(maxKept);
    this.#refused = new ResultMap(maxKept);
  }

  /** `verify` continues when the signal of the context is aborted, because others may wait for its result. */
  get(token: string, { signal, network }: VerifyContext, verify: Verify): Promise<VerificationResult> {
    return untilAborted(this.#get(token, network, verify), signal);
  }

  #get(token: string, network: string | undefined, verify: Verify): Promise<VerificationResult> {
    // A memory dump of this process must not show tokens.
    const digest = createHash("sha256").update(token).digest("base64");
    const kept = this.#good.get(digest) ?? this.#refused.get(digest);
    if (kept !== undefined) return Promise.resolve(kept);
    const pending = this.#pending.get(digest);
    if (pending !== undefined) return pending;
    const waitMs = network === undefined ? 0 : this.#budget.take(network);
    if (waitMs > 0) return Promise.resolve(crowded("its network has sent too many tokens", waitMs));
    const result = this.#verify(digest, network, verify);
    this.#pending.set(digest, result);
    return result;
  }

  clear(): void {
    this.#good.clear();
    this.#refused.clear();
  }

  async #verify(digest: string, network: string | undefined, verify: Verify): Promise<VerificationResult> {
    const sentence = `${this.#maxPending} are being verified now`;
    try {
      const result =
        network === undefined
          ? await verify(new AbortController().signal)
          : await this.#slots.run({ network }, { most: this.#maxPending, sentence }, verify);
      if ("ok" in result) {
        this.#good.set(digest, result, Math.min(Date.now() + MAX_KEEP_MS, result.ok.expiresAt.getTime()));
      } else if ("refused" in result) this.#refused.set(digest, result, Date.now() + KEEP_REFUSAL_MS);
      return result;
    } catch (error) {
      if (!(error instanceof CulvertError)) throw error;
      return crowded(sentence, CROWDED_RETRY_MS);
    } finally {
      this.#pending.delete(digest);
    }
  }
}

/** Results by the digest of their token, the most recent ones. */
class ResultMap {
  readonly #results: RecentMap<string, { readonly result: VerificationResult; readonly untilMs: number }>;

  constructor(max: number) {
    this.#results = new RecentMap(max);
  }

  get(digest: string): VerificationResult | undefined {
    const kept = this.#results.get(digest);
    if (kept !== undefined && kept.untilMs > Date.now()) return kept.result;
    this.#results.delete(digest);
    return undefined;
  }

  set(digest: string, result: VerificationResult, untilMs: number): void {
    if (untilMs > Date.now()) this.#results.set(digest, { result, untilMs });
  }

  clear(): void {
    this.#results.clear();
  }
}

function crowded(detail: string, retryAfterMs: number): VerificationResult {
  return { unavailable: "more tokens wait for verification than this server has time for", detail, retryAfterMs };
}
