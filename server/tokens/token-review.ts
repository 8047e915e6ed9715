import * as z from "zod";
import type { QueueNode } from "../../shared/basics/collections.ts";
import { TokenBucket } from "../../shared/basics/rate-limit.ts";
import { SharedInterval } from "../../shared/basics/timers.ts";
import { unverifiedClaims } from "../../shared/http/bearer.ts";
import { failureOf, HttpsClient } from "../../shared/http/https-client.ts";
import { type ApiAccess, checkAccess, type ReadAccess } from "../../shared/kubernetes/access.ts";
import { printable } from "../../shared/outcomes.ts";
import { VerificationCache } from "./verification-cache.ts";
import {
  type ApiServerState,
  identityOf,
  matchesPart,
  NO_END,
  notPermitted,
  quoted,
  refuseUnverified,
  type TokenVerifier,
  type VerificationResult,
  type VerifyContext,
} from "./verifier.ts";

export interface TokenReviewOptions {
  /** The token must be for this audience, and the API server must confirm it. */
  readonly audience: string;
  /** Patterns with `*` for the accounts whose tokens are accepted. */
  readonly agentNamespace: string;
  readonly agentServiceAccount: string;
  readonly access: ReadAccess;
  /** Called when the API server, which is also asked while no agent comes, begins to answer or to fail. */
  readonly onApiServer: (state: ApiServerState) => void;
}

/** Deadline of one review, ms; the agent's whole attempt has 10 s. */
const TIMEOUT_MS = 5_000;
const RETRY_AFTER_MS = 5_000;
/**
 * How long this process may take to read the answers, ms. A tenant may run the API server, and 1 MiB of JSON takes 180
 * ms; an honest answer takes less than one.
 */
const READING = { burst: 1_000, perSecond: 100 };
const HOW_TO_PERMIT = "bind the account that this server uses to the ClusterRole system:auth-delegator";
/** A token that is none, for reviews that only test whether the API server answers. */
export const NO_TOKEN = "culvert-is-this-api-server-reachable";
/** Shortest piece of a token that is removed from sentences, characters; shorter ones occur in plain words. */
const LEAST_SECRET = 8;

/** The part of a TokenReview's answer that is read (authentication.k8s.io/v1). */
const Review = z.object({
  status: z.object({
    authenticated: z.boolean().optional(),
    user: z.object({ username: z.string().optional() }).optional(),
    audiences: z.array(z.string()).optional(),
    error: z.string().optional(),
  }),
});
type ReviewStatus = z.infer<typeof Review>["status"];

/** Verifies tokens by a TokenReview of an API server, which also knows of accounts and pods deleted since. */
export class TokenReviewVerifier implements TokenVerifier {
  readonly #options: TokenReviewOptions;
  readonly #client = new HttpsClient();
  readonly #cache = new VerificationCache();
  readonly #reading = new TokenBucket(READING);
  readonly #closed = new AbortController();
  readonly #monitor: ApiServerMonitor;

  /** Throws a sentence for the author of the document. */
  constructor(options: TokenReviewOptions) {
    checkAccess(options.access);
    this.#options = options;
    const ask = () => void this.#review(NO_TOKEN, this.#closed.signal);
    this.#monitor = new ApiServerMonitor(ask, options.onApiServer);
  }

  get apiServer(): ApiServerState {
    return this.#monitor.state;
  }

  async verify(token: string, context: VerifyContext): Promise<VerificationResult> {
    // Without a review, so that it cannot cause a request to the API server.
    const refusal = refuseUnverified(token, { audience: this.#options.audience, noJwt: NO_END });
    return refusal ?? (await this.#cache.get(token, context, (dropped) => this.#review(token, dropped)));
  }

  close(): void {
    this.#monitor.close();
    this.#closed.abort();
    this.#client.close();
  }

  async #review(token: string, dropped: AbortSignal): Promise<VerificationResult> {
    const result = await this.#resultOf(token, dropped);
    // A dropped request says nothing about the API server.
    if (dropped.aborted) return result;
    if ("unavailable" in result) this.#monitor.failed(`${result.unavailable} (${result.detail})`);
    else this.#monitor.answered();
    return result;
  }

  async #resultOf(token: string, dropped: AbortSignal): Promise<VerificationResult> {
    let access: ApiAccess;
    try {
      access = this.#options.access();
    } catch (error) {
      return unavailable("this server's credentials for it cannot be read", (error as Error).message);
    }
    const { host } = access.server;
    try {
      const { status, text, retryAfterMs } = await this.#ask(access, token, dropped);
      if (status === 401) return unavailable("it does not know this server's credentials", `${host} answered 401`);
      if (status === 403) return unavailable("this server may not ask it", `${host} answered 403: ${HOW_TO_PERMIT}`);
      if (status < 200 || status > 299)
        return unavailable("it answers with an error", `${host}: ${status}`, retryAfterMs);
      return this.#read(text, token, host);
    } catch (error) {
      if (error instanceof SyntaxError) return unavailable("its answer is no TokenReview", `${host}: no JSON`);
      return unavailable("it does not answer", `${host}: ${failureOf(error)}`);
    }
  }

  #ask(
    { server, tls, token: ownToken }: ApiAccess,
    token: string,
    dropped: AbortSignal,
  ): ReturnType<HttpsClient["send"]> {
    const spec = { token, audiences: [this.#options.audience] };
    const review = { apiVersion: "authentication.k8s.io/v1", kind: "TokenReview", spec };
    return this.#client.send({
      // The URL of an API server behind a proxy (Rancher, kcp) has a path.
      url: new URL(`${server.href.replace(/\/$/, "")}/apis/authentication.k8s.io/v1/tokenreviews`),
      method: "POST",
      headers: {
        "content-type": "application/json",
        accept: "application/json",
        ...(ownToken === undefined ? {} : { authorization: `Bearer ${ownToken}` }),
      },
      body: JSON.stringify(review),
      tls,
      signal: AbortSignal.any([AbortSignal.timeout(TIMEOUT_MS), dropped]),
    });
  }

  #read(text: string, token: string, host: string): VerificationResult {
    const waitMs = this.#reading.charge(0);
    if (waitMs > 0) return unavailable("its answers take too long to read", host, waitMs);
    const begun = performance.now();
    try {
      const read = Review.safeParse(JSON.parse(text));
      if (read.success) return this.#conclude(read.data.status, token);
      return unavailable("its answer is no TokenReview", `${host}: ${z.prettifyError(read.error)}`);
    } finally {
      this.#reading.charge(performance.now() - begun);
    }
  }

  #conclude({ authenticated, user, audiences = [], error = "" }: ReviewStatus, token: string): VerificationResult {
    const { audience, agentNamespace, agentServiceAccount } = this.#options;
    if (authenticated !== true) {
      const why = error === "" ? "" : `: ${printable(without(token, error), 300)}`;
      const refused = `the API server does not accept the token for ${quoted(audience)}${why}`;
      const { issuedAt } = unverifiedClaims(token) ?? {};
      return issuedAt !== undefined && issuedAt > new Date() ? { refused, fault: "token_not_yet_valid" } : { refused };
    }
    // An API server that ignores audiences would accept the tokens that workloads send to the API server itself.
    if (!audiences.includes(audience)) {
      return { refused: `the API server does not say that the token is for ${quoted(audience)}` };
    }
    const end = unverifiedClaims(token)?.expiresAt;
    if (end === undefined) return { refused: NO_END };
    const identity = identityOf(user?.username ?? "", end);
    const { namespace, serviceAccount } = identity;
    const permitted =
      namespace !== undefined &&
      serviceAccount !== undefined &&
      matchesPart(agentNamespace, namespace) &&
      matchesPart(agentServiceAccount, serviceAccount);
    return permitted ? { ok: identity } : { refused: notPermitted(identity) };
  }
}

/** `why` goes to the agent, `detail` to the operator's log. */
function unavailable(why: string, detail: string, retryAfterMs = RETRY_AFTER_MS): VerificationResult {
  const sentence = `the API server that verifies tokens cannot be asked: ${why}`;
  return { unavailable: sentence, detail: printable(detail, 300), retryAfterMs };
}

/** Removes pieces of the token from the error text of an API server or a webhook behind it. */
function without(token: string, text: string): string {
  const pieces = [token, ...token.split(".")].filter((piece) => piece.length >= LEAST_SECRET);
  return pieces.reduce((rest, piece) => rest.replaceAll(piece, "[token]"), text);
}

// ── state of the API server ──────────────────────────────────────────────────────────────────────────────────────────

/** Interval at which the monitor checks whether a request is due, ms. */
const CHECK_MS = 10_000;
/** After this long without a review the monitor makes one of its own, ms. */
const QUIET_MS = 60_000;

/**
 * Knows whether the API server answers, by the last request. Agents cause most requests. While none comes the monitor
 * makes one each minute, or every 10 s while the API server fails, so that a fault is known before an agent meets it.
 */
export class ApiServerMonitor {
  readonly #ask: () => void;
  readonly #onChanged: (state: ApiServerState) => void;
  readonly #place: QueueNode<() => void>;
  #state: ApiServerState = { state: "untried" };
  #askedAtMs = 0;

  /** `ask` sends a request whose end is reported by `answered` or `failed`. */
  constructor(ask: () => void, onChanged: (state: ApiServerState) => void) {
    this.#ask = ask;
    this.#onChanged = onChanged;
    this.#place = SharedInterval.every(CHECK_MS).add(() => this.#check());
    this.#send();
  }

  get state(): ApiServerState {
    return this.#state;
  }

  answered(): void {
    this.#askedAtMs = performance.now();
    if (this.#state.state !== "answers") this.#change({ state: "answers" });
  }

  failed(fault: string): void {
    this.#askedAtMs = performance.now();
    const before = this.#state;
    const hasAnswered = before.state === "answers" || (before.state === "failing" && before.hasAnswered);
    if (before.state !== "failing" || before.fault !== fault) this.#change({ state: "failing", fault, hasAnswered });
  }

  close(): void {
    this.#place.leave();
  }

  #check(): void {
    const isQuiet = performance.now() - this.#askedAtMs >= QUIET_MS;
    if (this.#state.state === "failing" || isQuiet) this.#send();
  }

  #send(): void {
    this.#askedAtMs = performance.now();
    this.#ask();
  }

  #change(state: ApiServerState): void {
    this.#state = state;
    this.#onChanged(state);
  }
}
