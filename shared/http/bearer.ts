/** Bearer tokens as both ends see them (RFC 6750 §2.1): what fits into a header, and what a JWT says of its own end. */

/** A ServiceAccount's token has one or two KiB; what is longer is nobody's, and not worth a look. */
export const MAX_TOKEN_BYTES = 16 * 1024;

/** Why this text can be no token, as the rest of a sentence; `undefined`: it may be one. */
export function unfitToken(text: string): string | undefined {
  if (text === "") return "is empty";
  if (text.length > MAX_TOKEN_BYTES) return `is longer than ${MAX_TOKEN_BYTES / 1024} KiB`;
  if (!/^[A-Za-z0-9._~+/-]+=*$/.test(text)) return "holds characters that no bearer token has";
  return undefined;
}

/** What asks for a token in a 401 or 407 (RFC 6750 §3). */
export const BEARER_CHALLENGE = 'Bearer realm="culvert"';

/** A token that came in a header, and the cluster that was named with it. */
export interface PresentedToken {
  readonly token: string;
  readonly cluster?: string;
}

/**
 * Reads `Authorization` and `Proxy-Authorization`: `Bearer TOKEN`, or `Basic CLUSTER:TOKEN` of tools that know nothing
 * else (RFC 7617 §2). `undefined`: no token was sent. Whether it is one is for `unfitToken` to say.
 */
export function presentedToken(header: string | undefined): PresentedToken | undefined {
  if (header === undefined) return undefined;
  const space = header.indexOf(" ");
  const scheme = header.slice(0, Math.max(0, space)).toLowerCase();
  const rest = header.slice(space + 1).trim();
  if (scheme === "bearer") return { token: rest };
  if (scheme !== "basic" || rest.length > 2 * MAX_TOKEN_BYTES) return undefined;
  const text = Buffer.from(rest, "base64").toString("utf8");
  const colon = text.indexOf(":");
  return colon < 0 ? undefined : { cluster: text.slice(0, colon), token: text.slice(colon + 1) };
}

/** What a JWT says of itself (RFC 7519 §4.1). Nobody has verified it. */
export interface UnverifiedClaims {
  readonly issuer: unknown;
  readonly audiences: readonly unknown[];
  /** `undefined`: it says none, or none that a clock could show. */
  readonly expiresAt: Date | undefined;
  /** `undefined`, as for its end. */
  readonly issuedAt: Date | undefined;
}

/** `undefined`: it is no JWT. */
export function unverifiedClaims(token: string): UnverifiedClaims | undefined {
  const parts = token.split(".");
  if (parts.length !== 3) return undefined;
  try {
    const claims: unknown = JSON.parse(Buffer.from(parts[1] ?? "", "base64url").toString("utf8"));
    if (typeof claims !== "object" || claims === null) return undefined;
    const { iss: issuer, aud, exp, iat } = claims as Readonly<Record<string, unknown>>;
    return { issuer, audiences: aud === undefined ? [] : [aud].flat(), expiresAt: dateOf(exp), issuedAt: dateOf(iat) };
  } catch {
    return undefined;
  }
}

/** A NumericDate (RFC 7519 §2), if a clock could show it. */
function dateOf(seconds: unknown): Date | undefined {
  const date = typeof seconds === "number" ? new Date(seconds * 1_000) : undefined;
  return date === undefined || Number.isNaN(date.getTime()) ? undefined : date;
}

/** When the token ends, as it says itself; `undefined`: it is no JWT, or has no end. */
export function tokenExpiry(token: string): Date | undefined {
  return unverifiedClaims(token)?.expiresAt;
}
