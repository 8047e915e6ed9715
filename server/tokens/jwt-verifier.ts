import {
  createLocalJWKSet,
  createRemoteJWKSet,
  customFetch,
  decodeProtectedHeader,
  errors,
  type JSONWebKeySet,
  type JWTPayload,
  type JWTVerifyGetKey,
  jwtVerify,
} from "jose";
import { matchesSubject } from "../../shared/basics/text.ts";
import { readTextSync } from "../../shared/documents/read-bounded.ts";
import { WatchedFiles } from "../../shared/documents/watched-files.ts";
import { failureOf, HttpsClient } from "../../shared/http/https-client.ts";
import { printable } from "../../shared/outcomes.ts";
import type { Logger } from "../../shared/runtime/logger.ts";
import { loadClientTls } from "../../shared/tls/tls-material.ts";
import { ASYMMETRIC, type JwtTrust } from "../clusters/document.ts";
import { VerificationCache } from "./verification-cache.ts";
import {
  CLOCK_TOLERANCE_S,
  expiredAt,
  identityOf,
  notPermitted,
  refuseUnverified,
  type TokenVerifier,
  type VerificationResult,
  type VerifyContext,
} from "./verifier.ts";

/** When an agent should try again while the issuer's keys cannot be fetched, ms. */
const RETRY_AFTER_MS = 5_000;

const NO_JWT = "the token is no signed JWT";
const UNKNOWN_KEY = [
  errors.JWKSNoMatchingKey,
  errors.JWKSMultipleMatchingKeys,
  errors.JWSSignatureVerificationFailed,
] as const;
const MALFORMED = [errors.JWSInvalid, errors.JWTInvalid, errors.JOSENotSupported] as const;

/** Verifies tokens by the issuer's public keys (RFC 7519, RFC 8725), without a request for each token. */
export class JwtVerifier implements TokenVerifier {
  readonly #trust: Omit<JwtTrust, "kind">;
  readonly #algorithms: readonly string[];
  readonly #keys: IssuerKeys;
  readonly #cache = new VerificationCache();

  /** Throws a sentence for the author of the document. */
  constructor(trust: Omit<JwtTrust, "kind">, log: Logger) {
    this.#trust = trust;
    this.#algorithms = trust.algorithms ?? ASYMMETRIC;
    const { jwks } = trust;
    // Results verified by earlier keys are not good any more.
    const onRenewed = () => this.#cache.clear();
    this.#keys = "file" in jwks ? keysInFile(jwks.file, log, onRenewed) : keysAt(new URL(jwks.url), jwks.caFile);
  }

  async verify(token: string, context: VerifyContext): Promise<VerificationResult> {
    const refusal = refuseUnverified(token, { ...this.#trust, noJwt: NO_JWT });
    return refusal ?? (await this.#cache.get(token, context, () => this.#verify(token)));
  }

  close(): void {
    this.#keys.close();
  }

  async #verify(token: string): Promise<VerificationResult> {
    const { issuer, audience, subjects } = this.#trust;
    try {
      const { payload } = await jwtVerify(token, this.#keys.find, {
        issuer,
        audience,
        algorithms: [...this.#algorithms],
        clockTolerance: CLOCK_TOLERANCE_S,
        requiredClaims: ["sub", "exp"],
      });
      const identity = identityOf(payload.sub ?? "", endOf(payload));
      const permitted = subjects.some((pattern) => matchesSubject(pattern, identity.subject));
      return permitted ? { ok: identity } : { refused: notPermitted(identity) };
    } catch (error) {
      return this.#explain(error, token);
    }
  }

  #explain(error: unknown, token: string): VerificationResult {
    if (error instanceof errors.JWTExpired) {
      return { refused: expiredAt(endOf(error.payload)), fault: "token_expired" };
    }
    if (error instanceof errors.JWTClaimValidationFailed) {
      const refused = badClaim(error);
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
}

/** The fault of a claim that `refuseUnverified` has not seen. */
function badClaim({ claim }: errors.JWTClaimValidationFailed): string {
  if (claim === "nbf") return "the token is not valid yet: check both clocks";
  if (claim === "sub") return "the token names nobody (sub)";
  return `the token's claim "${printable(claim, 40)}" is not acceptable`;
}

/** `refuseUnverified` has seen that it is a date. */
function endOf({ exp = 0 }: JWTPayload): Date {
  return new Date(exp * 1_000);
}

// ── keys ─────────────────────────────────────────────────────────────────────────────────────────────────────────────

/** The issuer's public keys as they are at present, a JWKS (RFC 7517 §5). */
interface IssuerKeys {
  readonly find: JWTVerifyGetKey;
  close(): void;
}

/** Throws a sentence if the file cannot be used at the start; a later one that cannot leaves the old keys in force. */
function keysInFile(file: string, log: Logger, onRenewed: () => void): IssuerKeys {
  const renewed = "keys of the token issuer have changed";
  const unusable = "new keys of the token issuer cannot be used";
  const keys = new WatchedFiles({ paths: [file], load: () => readKeys(file), renewed, unusable }, { log, onRenewed });
  return { find: (header, token) => keys.content(header, token), close: () => keys.close() };
}

function readKeys(file: string): JWTVerifyGetKey {
  const text = readTextSync(file, `the key set ${file}`);
  let keys: JSONWebKeySet;
  let find: JWTVerifyGetKey;
  try {
    keys = JSON.parse(text);
    find = createLocalJWKSet(keys);
  } catch (error) {
    throw new Error(`the key set ${file} is no JSON Web Key Set`, { cause: error });
  }
  if (keys.keys.length === 0) throw new Error(`the key set ${file} holds no key: nobody could come in`);
  // With a secret key in the file, its readers could make tokens.
  if (keys.keys.some((key) => key.kty === "oct" || key.d !== undefined)) {
    throw new Error(`the key set ${file} holds a private or a shared key: give the public ones only`);
  }
  return find;
}

/**
 * Shortest time between requests for unknown keys, ms, because an unauthenticated peer can name keys that do not exist.
 */
const COOLDOWN_MS = 30_000;
/** Time without requests after one that failed, ms, because each token would cause another one. */
const FAILED_COOLDOWN_MS = 5_000;
/** Longest time for which a key that the issuer has withdrawn stays good, ms. */
const MAX_AGE_MS = 600_000;
const TIMEOUT_MS = 5_000;

function keysAt(url: URL, caFile: string | undefined): IssuerKeys {
  const client = new HttpsClient();
  // The CA file is read anew for each request, and once now so that a wrong path fails the start.
  const tls = (): { readonly ca?: string } => (caFile === undefined ? {} : loadClientTls({ caFile }));
  tls();
  const fetchKeys = async (headers: Headers, signal: AbortSignal): Promise<Response> => {
    const wanted = { url, method: "GET", headers: Object.fromEntries(headers), tls: tls(), signal } as const;
    const { status, text } = await client.send(wanted);
    if (status !== 200) throw new Error(`it answered ${status}`);
    createLocalJWKSet(JSON.parse(text)); // throws for a malformed key set, which then counts as a failed request
    return new Response(text, { status });
  };
  let failed: { readonly error: unknown; readonly at: number } | undefined;
  const find = createRemoteJWKSet(url, {
    cooldownDuration: COOLDOWN_MS,
    cacheMaxAge: MAX_AGE_MS,
    timeoutDuration: TIMEOUT_MS,
    [customFetch]: async (_href, { headers, signal }) => {
      if (failed !== undefined && Date.now() - failed.at < FAILED_COOLDOWN_MS) throw failed.error;
      try {
        return await fetchKeys(headers, signal);
      } catch (error) {
        failed = { error, at: Date.now() };
        throw error;
      }
    },
  });
  return { find, close: () => client.close() };
}
