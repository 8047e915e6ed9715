import type { EventEmitter } from "node:events";
import { BySource } from "../../shared/basics/by-source.ts";
import { untilAborted } from "../../shared/basics/promises.ts";
import { matchesWildcard } from "../../shared/basics/text.ts";
import { unfitToken, unverifiedClaims } from "../../shared/http/bearer.ts";
import { type CredentialFault, CulvertError, printable } from "../../shared/outcomes.ts";

/** Whether the API server that verifies tokens answers. */
export type ApiServerState =
  /** No request has ended yet. */
  | { readonly state: "untried" }
  | { readonly state: "answers" }
  /** `fault` is a sentence for operators, with addresses. `hasAnswered`: it answered before, since the start. */
  | { readonly state: "failing"; readonly fault: string; readonly hasAnswered: boolean };

/** The account that a valid token names. */
export interface TokenIdentity {
  /** Equal for all tokens of an account: `system:serviceaccount:NAMESPACE:NAME`, or the `sub` of another issuer. */
  readonly subject: string;
  readonly namespace?: string;
  readonly serviceAccount?: string;
  readonly expiresAt: Date;
}

/** The token is not accepted; only another token may be. */
interface TokenRefused {
  readonly refused: string;
  readonly fault?: CredentialFault;
}

/**
 * The result of a verification. Its sentences go to the sender of the token too, and never hold a piece of the token.
 */
export type VerificationResult =
  | { readonly ok: TokenIdentity }
  | TokenRefused
  /** The verifier cannot tell now. `detail` has addresses and paths, for the operator's log alone. */
  | { readonly unavailable: string; readonly detail: string; readonly retryAfterMs: number };

/** The request for one verification. */
export interface VerifyContext {
  /** Aborted when the result is not needed any more. */
  readonly signal: AbortSignal;
  /** Network that the token came from (`networkOf`); absent for a tunnel that is open, which waits behind no peer. */
  readonly network?: string;
}

/** One way to verify tokens. */
export interface TokenVerifier {
  /** Present where an API server verifies the tokens. */
  readonly apiServer?: ApiServerState;
  /** Rejects only with the signal's reason. */
  verify(token: string, context: VerifyContext): Promise<VerificationResult>;
  /** Releases watches of files and connections. */
  close(): void;
}

/** Clocks of two machines may differ by this much, s. */
export const CLOCK_TOLERANCE_S = 30;

/** The issuer could never take back a token without an end. */
export const NO_END = "the token has no end (exp): use a projected service account token, which has one";

export function expiredAt(end: Date): string {
  const when = end.toISOString().replace(".000", "");
  return `the token expired at ${when}: the agent's token file holds an old one, or a clock is wrong`;
}

/** The claims that a token needs before it is verified. */
interface RequiredClaims {
  /** The refusal of a text that is no JWT. */
  readonly noJwt: string;
  /** Absent where only the verifying API server knows the issuer. */
  readonly issuer?: string;
  readonly audience: string;
}

/**
 * Says why a token cannot be good, whatever its signature; `undefined` if it may be. It reads claims that nobody has
 * verified: a forged token may pass, but an honest mistake costs no verification.
 */
export function refuseUnverified(token: string, { noJwt, issuer, audience }: RequiredClaims): TokenRefused | undefined {
  const unfit = unfitToken(token);
  if (unfit !== undefined) return { refused: `the token ${unfit}` };
  const claims = unverifiedClaims(token);
  if (claims === undefined) return { refused: noJwt };
  if (claims.expiresAt === undefined) return { refused: NO_END };
  if (issuer !== undefined && claims.issuer !== issuer) {
    return { refused: `the token was issued by ${quoted(claims.issuer)}, not by ${quoted(issuer)}` };
  }
  if (!claims.audiences.includes(audience)) {
    return { refused: `the token is for ${quoted(claims.audiences)}, not for ${quoted(audience)}` };
  }
  if (claims.expiresAt.getTime() + CLOCK_TOLERANCE_S * 1_000 < Date.now()) {
    return { refused: expiredAt(claims.expiresAt), fault: "token_expired" };
  }
  return undefined;
}

/** Quotes names from outside for a sentence. */
export function quoted(value: unknown): string {
  const values = value === undefined ? [] : [value].flat();
  if (values.length === 0) return "nobody";
  return printable(values.map((one) => `"${String(one)}"`).join(", "), 200);
}

/** The first parts of a ServiceAccount in tokens and user names of Kubernetes. It has four parts without colons. */
const PREFIX = ["system", "serviceaccount"] as const;

/** Makes an identity from a verified subject. */
export function identityOf(subject: string, expiresAt: Date): TokenIdentity {
  const [system, kind, namespace, serviceAccount, ...rest] = subject.split(":");
  const isServiceAccount = system === PREFIX[0] && kind === PREFIX[1] && rest.length === 0;
  if (!isServiceAccount || !namespace || !serviceAccount) return { subject, expiresAt };
  return { subject, namespace, serviceAccount, expiresAt };
}

/** Whether one part of a subject, such as a namespace, matches a pattern. */
export function matchesPart(pattern: string, value: string): boolean {
  return matchesWildcard(pattern.split("*"), value);
}

/** The refusal of a valid token whose account is not permitted. */
export function notPermitted({ subject, namespace, serviceAccount }: TokenIdentity): string {
  if (namespace === undefined) return `the token's subject "${printable(subject, 120)}" is not permitted here`;
  return `service account ${printable(`${namespace}/${serviceAccount}`, 120)} is not permitted here`;
}

/** The holder of a slot. */
interface SlotHolder {
  /** Where the token came from (`networkOf`). */
  readonly network: string;
  /** The peer's socket: its close frees the slot. Absent: only the end of the verification does. */
  readonly socket?: EventEmitter;
}

interface SlotRules {
  /** Number of slots. One holder more drops the oldest of the network that has most. */
  readonly most: number;
  /** The refusal of a holder that is dropped. */
  readonly sentence: string;
}

/** When a peer whose verification was dropped should come back, ms. */
export const CROWDED_RETRY_MS = 1_000;

/** Bounds what verifies tokens at once, which may take seconds. */
export class VerificationSlots {
  readonly #slots = new BySource<AbortController>();

  get size(): number {
    return this.#slots.size;
  }

  /** Rejects with `overloaded` for a holder that is dropped. `verify` must stop at the signal. */
  async run<T>(
    { network, socket }: SlotHolder,
    { most, sentence }: SlotRules,
    verify: (dropped: AbortSignal) => Promise<T>,
  ): Promise<T> {
    const slot = new AbortController();
    const leave = (): void => void this.#slots.delete(slot);
    slot.signal.addEventListener("abort", leave);
    socket?.once("close", leave);
    this.#slots.add(slot, network);
    if (this.#slots.size > most) {
      this.#slots.oldestOfFullest?.abort(new CulvertError("overloaded", sentence, { retryAfterMs: CROWDED_RETRY_MS }));
    }
    try {
      return await untilAborted(verify(slot.signal), slot.signal);
    } finally {
      socket?.off("close", leave);
      leave();
    }
  }
}
