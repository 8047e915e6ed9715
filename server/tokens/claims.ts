import type { UnverifiedClaims } from "../../shared/http/bearer.ts";
import { printable } from "../../shared/outcomes.ts";
import { CLOCK_TOLERANCE_S, expiredAt, NO_END, type TokenRefused } from "./verifier.ts";

/** What a token must say of itself before anybody is asked, or anything computed, for it. */
export interface WantedClaims {
  /** Absent: only who is asked knows the issuer. */
  readonly issuer?: string;
  /** Any of them. */
  readonly audiences: readonly string[];
}

/**
 * Why a token cannot be good whoever has signed it; `undefined`: it may be. It looks at the claims of a token that
 * nobody has verified, so a forged one may pass; an honest mistake, or a token for somebody else, costs nothing.
 */
export function refuseByClaims(
  claims: UnverifiedClaims,
  { issuer, audiences }: WantedClaims,
): TokenRefused | undefined {
  if (claims.expiresAt === undefined) return { refused: NO_END };
  if (issuer !== undefined && claims.issuer !== issuer) {
    return { refused: `the token was issued by ${quoted(claims.issuer)}, not by ${quoted(issuer)}` };
  }
  if (!claims.audiences.some((audience) => audiences.includes(audience as string))) {
    return { refused: `the token is for ${quoted(claims.audiences)}, not for ${quoted(audiences, " or ")}` };
  }
  if (claims.expiresAt.getTime() + CLOCK_TOLERANCE_S * 1_000 < Date.now()) {
    return { refused: expiredAt(claims.expiresAt), fault: "token_expired" };
  }
  return undefined;
}

/** Names from outside for a sentence. */
export function quoted(value: unknown, join = ", "): string {
  const values = value === undefined ? [] : [value].flat();
  if (values.length === 0) return "nobody";
  return printable(values.map((one) => `"${String(one)}"`).join(join), 200);
}
