import { z } from "zod";
import { untilAborted } from "../../shared/basics/promises.ts";
import { unfitToken, unverifiedClaims } from "../../shared/http/bearer.ts";
import { printable } from "../../shared/outcomes.ts";
import { quoted, refuseByClaims } from "./claims.ts";
import { failureOf, HttpsClient } from "./https.ts";
import { type ApiAccess, checkAccess, type ReadAccess } from "./kube-access.ts";
import { type Reach, ReviewReach } from "./review-reach.ts";
import { identityOf, matchesPart, notPermitted } from "./subject.ts";
import { type Judged, keptUntil, VERDICTS, Verdicts } from "./verdicts.ts";
import { NO_END, type TokenAsker, type TokenVerifier, type VerificationResult } from "./verifier.ts";

export interface TokenReviewOptions {
  /** The token must be for one of them, and the API server must say so. */
  readonly audiences: readonly string[];
  /** Patterns with `*`: whose tokens are an agent's. */
  readonly agentNamespaces: readonly string[];
  readonly agentServiceAccounts: readonly string[];
  readonly access: ReadAccess;
  /** Longest time until a token that was withdrawn (its pod or account deleted) is noticed, ms; at most a minute. */
  readonly keepMs?: number;
  /** Given: the API server is also asked when no agent comes, and this hears of it when that begins or ceases to work. */
  readonly onReach?: (reach: Reach) => void;
}

/** The agent's whole attempt has 10 s. */
const TIMEOUT_MS = 5_000;
const RETRY_AFTER_MS = 5_000;
const HOW_TO_PERMIT = "bind the account that this server uses to the ClusterRole system:auth-delegator";
/** What is asked about where it only counts whether there is an answer. */
export const NO_TOKEN = "culvert-is-this-api-server-reachable";
/** Anything shorter stands in half the sentences there are. */
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

/** Asks an API server whose token this is. It also knows of accounts and pods that have gone since the token was made. */
export class TokenReviewVerifier implements TokenVerifier {
  readonly #options: TokenReviewOptions;
  readonly #client = new HttpsClient();
  readonly #verdicts = new Verdicts(VERDICTS);
  readonly #closed = new AbortController();
  readonly #reach: ReviewReach | undefined;

  /** Throws a sentence for whoever wrote the options. */
  constructor(options: TokenReviewOptions) {
    if (options.audiences.length === 0) {
      throw new Error("token reviews need an audience: without one, a token made for the API server itself would do");
    }
    // Any pod of the cluster gets a token for any audience that it asks for.
    if (options.agentNamespaces.length === 0 || options.agentServiceAccounts.length === 0) {
      throw new Error("say whose tokens count: agentNamespace and agentServiceAccount, with * as a wildcard");
    }
    checkAccess(options.access);
    this.#options = options;
    const { onReach } = options;
    if (onReach !== undefined) {
      const ask = () => void this.#review(NO_TOKEN, new Date(), this.#closed.signal);
      this.#reach = new ReviewReach(ask, onReach);
    }
  }

  get reach(): Reach {
    return this.#reach?.now ?? { state: "untried" };
  }

  async verify(token: string, { signal, network }: TokenAsker): Promise<VerificationResult> {
    const unfit = unfitToken(token);
    if (unfit !== undefined) return { refused: `the token ${unfit}` };
    // Nobody need be asked about these, and nobody can be made to ask with them.
    const claims = unverifiedClaims(token);
    if (claims?.expiresAt === undefined) return { refused: NO_END };
    const { audiences } = this.#options;
    const fault = refuseByClaims(claims, { audiences });
    if (fault !== undefined) return fault;
    const end = claims.expiresAt;
    return await untilAborted(
      this.#verdicts.of(token, network, (dropped) => this.#judge(token, end, dropped)),
      signal,
    );
  }

  close(): void {
    this.#reach?.close();
    this.#closed.abort();
    this.#client.close();
  }

  async #judge(token: string, end: Date, dropped: AbortSignal): Promise<Judged> {
    const verdict = await this.#review(token, end, dropped);
    return { verdict, keepUntilMs: keptUntil(verdict, this.#options.keepMs) };
  }

  async #review(token: string, end: Date, dropped: AbortSignal): Promise<VerificationResult> {
    const verdict = await this.#reviewed(token, end, dropped);
    // That nobody waits for the answer any more says nothing about the API server.
    if (dropped.aborted) return verdict;
    if ("unavailable" in verdict) this.#reach?.failed(`${verdict.unavailable} (${verdict.detail})`);
    else this.#reach?.answered();
    return verdict;
  }

  async #reviewed(token: string, end: Date, dropped: AbortSignal): Promise<VerificationResult> {
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
      const read = Review.safeParse(JSON.parse(text));
      if (read.success) return this.#conclude(read.data.status, token, end);
      return unavailable("its answer is no TokenReview", `${host}: ${z.prettifyError(read.error)}`);
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
    const { audiences } = this.#options;
    const review = { apiVersion: "authentication.k8s.io/v1", kind: "TokenReview", spec: { token, audiences } };
    return this.#client.send({
      // An API server behind a proxy (Rancher, kcp) has a path of its own in front.
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

  #conclude(
    { authenticated, user, audiences = [], error = "" }: ReviewStatus,
    token: string,
    end: Date,
  ): VerificationResult {
    const wanted = this.#options.audiences;
    if (authenticated !== true) {
      const why = error === "" ? "" : `: ${printable(without(token, error), 300)}`;
      const refused = `the API server does not accept the token for ${quoted(wanted, " or ")}${why}`;
      const { issuedAt } = unverifiedClaims(token) ?? {};
      return issuedAt !== undefined && issuedAt > new Date() ? { refused, fault: "token_not_yet_valid" } : { refused };
    }
    // One that knows nothing of audiences accepts the tokens that workloads send to the API server itself.
    if (!audiences.some((audience) => wanted.includes(audience))) {
      return { refused: `the API server does not say that the token is for ${quoted(wanted, " or ")}` };
    }
    const identity = identityOf(user?.username ?? "", end);
    const { agentNamespaces, agentServiceAccounts } = this.#options;
    const { namespace, serviceAccount } = identity;
    const permitted =
      namespace !== undefined &&
      serviceAccount !== undefined &&
      agentNamespaces.some((pattern) => matchesPart(pattern, namespace)) &&
      agentServiceAccounts.some((pattern) => matchesPart(pattern, serviceAccount));
    return permitted ? { ok: identity } : { refused: notPermitted(identity) };
  }
}

/** What an agent may read, and what the operator should. */
function unavailable(why: string, detail: string, retryAfterMs = RETRY_AFTER_MS): VerificationResult {
  const sentence = `the API server that judges tokens cannot be asked: ${why}`;
  return { unavailable: sentence, detail: printable(detail, 300), retryAfterMs };
}

/** An error's text is the API server's, or a webhook's behind it; that it shows no token is ours to see to. */
function without(token: string, text: string): string {
  const pieces = [token, ...token.split(".")].filter((piece) => piece.length >= LEAST_SECRET);
  return pieces.reduce((rest, piece) => rest.replaceAll(piece, "[token]"), text);
}
