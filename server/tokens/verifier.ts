import type { Reach } from "./review-reach.ts";

/** Whom a valid token names. */
export interface TokenIdentity {
  /** The same for every token of this account: `system:serviceaccount:NAMESPACE:NAME`, or another issuer's `sub`. */
  readonly subject: string;
  readonly namespace?: string;
  readonly serviceAccount?: string;
  readonly expiresAt: Date;
}

/** What a verifier says of a token. The sentences are for whoever sent it, too: they never hold the token or a piece of it. */
export type VerificationResult =
  | { readonly ok: TokenIdentity }
  /** Time will not mend it: another token may. */
  | { readonly refused: string }
  /** Nobody can say now: the one to ask is down. `detail` has addresses and paths, for the operator's log alone. */
  | { readonly unavailable: string; readonly detail: string; readonly retryAfterMs: number };

/** Who waits for a verdict. */
export interface TokenAsker {
  /** Whoever waits gives up. */
  readonly signal: AbortSignal;
  /** Where the token came from (`networkOf`); absent: with a tunnel that stands, which waits behind no peer. */
  readonly network?: string;
}

/** One way to tell whose token this is. */
export interface TokenVerifier {
  /** Present where an API server is asked: whether it can be. */
  readonly reach?: Reach;
  /** Rejects with the signal's reason only. */
  verify(token: string, asker: TokenAsker): Promise<VerificationResult>;
  /** Ends what it holds open: watches of files, connections. */
  close(): void;
}

/** Clocks of two machines differ by so much, s. */
export const CLOCK_TOLERANCE_S = 30;

/** A token that lasts for ever could never be taken back by its issuer. */
export const NO_END = "the token has no end (exp): use a projected service account token, which has one";

export function expiredAt(end: Date | undefined): string {
  const when = end === undefined ? "" : ` at ${end.toISOString().replace(".000", "")}`;
  return `the token expired${when}: the agent's token file holds an old one, or a clock is wrong`;
}
