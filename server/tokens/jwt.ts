import { decodeProtectedHeader, errors, jwtVerify } from "jose";
import { untilAborted } from "../../shared/basics/promises.ts";
import { tokenExpiry, unfitToken, unverifiedClaims } from "../../shared/http/bearer.ts";
import { printable } from "../../shared/outcomes.ts";
import type { Logger } from "../../shared/runtime/logger.ts";
import { ASYMMETRIC } from "../../shared/tls/token-algorithms.ts";
import { quoted, refuseByClaims } from "./claims.ts";
import { failureOf } from "./https.ts";
import { type IssuerKeys, issuerKeys, type KeyLocation } from "./keys.ts";
import { identityOf, matchesSubject, notPermitted } from "./subject.ts";
import { type Judged, keptUntil, VERDICTS, Verdicts } from "./verdicts.ts";
import {
  CLOCK_TOLERANCE_S,
  expiredAt,
  NO_END,
  type TokenAsker,
  type TokenVerifier,
  type VerificationResult,
} from "./verifier.ts";

export interface JwtOptions {
  readonly issuer: string;
  /** A token for any of them will do. */
  readonly audiences: readonly string[];
  /** Absent: all of `ASYMMETRIC`. */
  readonly algorithms?: readonly string[];
  readonly keys: KeyLocation;
  /** Who may come in, by `sub`; `*` is any run of characters but a colon, or alone: everybody. */
  readonly subjects: readonly string[];
}

/** When an agent should ask again while the issuer's keys cannot be had, ms. */
const RETRY_AFTER_MS = 5_000;

/** Verifies tokens by the issuer's public keys (RFC 7519, RFC 8725), without asking anybody for each of them. */
export class JwtVerifier implements TokenVerifier {
  readonly #options: JwtOptions;
  readonly #algorithms: readonly string[];
  readonly #keys: IssuerKeys;
  readonly #verdicts = new Verdicts(VERDICTS);

  /** Throws a sentence for whoever wrote the options. */
  constructor(options: JwtOptions, log: Logger) {
    this.#options = options;
    this.#algorithms = options.algorithms ?? ASYMMETRIC;
    const forbidden = this.#algorithms.find((name) => !ASYMMETRIC.includes(name));
    if (forbidden !== undefined) {
      throw new Error(`algorithm "${forbidden}" cannot prove who made a token; allowed are ${ASYMMETRIC.join(", ")}`);
    }
    if (options.issuer === "" || options.audiences.length === 0) {
      throw new Error("tokens need an issuer and an audience: without them, a token made for anybody would do");
    }
    if (options.subjects.length === 0) throw new Error("say whose tokens count: there are no subjects");
    this.#keys = issuerKeys(options.keys, log, () => this.#verdicts.forget());
  }

  async verify(token: string, { signal, network }: TokenAsker): Promise<VerificationResult> {
    const unfit = unfitToken(token);
    if (unfit !== undefined) return { refused: `the token ${unfit}` };
    const claims = unverifiedClaims(token);
    if (claims === undefined) return { refused: NO_JWT };
    const fault = refuseByClaims(claims, this.#options);
    if (fault !== undefined) return fault;
    return await untilAborted(
      this.#verdicts.of(token, network, () => this.#judge(token)),
      signal,
    );
  }

  async #judge(token: string): Promise<Judged> {
    const verdict = await this.#verify(token);
    return { verdict, keepUntilMs: keptUntil(verdict) };
  }

  async #verify(token: string): Promise<VerificationResult> {
    const { issuer, audiences, subjects } = this.#options;
    try {
      const { payload } = await jwtVerify(token, this.#keys.find, {
        issuer,
        audience: [...audiences],
        algorithms: [...this.#algorithms],
        clockTolerance: CLOCK_TOLERANCE_S,
        requiredClaims: ["sub", "exp"],
      });
      const end = tokenExpiry(token);
      if (end === undefined) return { refused: NO_END };
      const identity = identityOf(payload.sub ?? "", end);
      const permitted = subjects.some((pattern) => matchesSubject(pattern, identity.subject));
      return permitted ? { ok: identity } : { refused: notPermitted(identity) };
    } catch (error) {
      return this.#explain(error, token);
    }
  }

  #explain(error: unknown, token: string): VerificationResult {
    if (error instanceof errors.JWTExpired) {
      return { refused: expiredAt(tokenExpiry(token)), fault: "token_expired" };
    }
    // The signature was good: what the claims say is the issuer's word, and may be shown.
    if (error instanceof errors.JWTClaimValidationFailed) {
      const refused = this.#badClaim(error);
      return error.claim === "nbf" ? { refused, fault: "token_not_yet_valid" } : { refused };
    }
    if (error instanceof errors.JOSEAlgNotAllowed) {
      const algorithm = printable(String(decodeProtectedHeader(token).alg), 20);
      return { refused: `the token's algorithm "${algorithm}" is not allowed (${this.#algorithms.join(", ")})` };
    }
    if (UNKNOWN_KEY.some((kind) => error instanceof kind)) {
      return { refused: "the token is signed by a key that is not the issuer's" };
    }
    if (MALFORMED.some((kind) => error instanceof kind)) return { refused: NO_JWT };
    const detail = error instanceof errors.JWKSTimeout ? "it took too long to answer" : failureOf(error);
    return { unavailable: "the keys of the token issuer cannot be had now", detail, retryAfterMs: RETRY_AFTER_MS };
  }

  close(): void {
    this.#keys.close();
  }

  #badClaim({ claim, payload }: errors.JWTClaimValidationFailed): string {
    const { issuer, audiences } = this.#options;
    if (claim === "aud") return `the token is for ${quoted(payload.aud)}, not for ${quoted(audiences, " or ")}`;
    if (claim === "iss") return `the token was issued by ${quoted(payload.iss)}, not by ${quoted(issuer)}`;
    if (claim === "nbf") return "the token is not valid yet: check both clocks";
    if (claim === "exp") return NO_END;
    if (claim === "sub") return "the token names nobody (sub)";
    return `the token's claim "${printable(claim, 40)}" is not acceptable`;
  }
}

const NO_JWT = "the token is no signed JWT";
const UNKNOWN_KEY = [
  errors.JWKSNoMatchingKey,
  errors.JWKSMultipleMatchingKeys,
  errors.JWSSignatureVerificationFailed,
] as const;
const MALFORMED = [errors.JWSInvalid, errors.JWTInvalid, errors.JOSENotSupported] as const;
