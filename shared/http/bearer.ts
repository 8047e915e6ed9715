import { jsonOf } from "../basics/text.ts";

/** Maximum length of a bearer token (RFC 6750 §2.1). A ServiceAccount's token has one or two KiB. */
export const MAX_TOKEN_BYTES = 16 * 1024;

/** Why this text cannot be a bearer token, as the end of a sentence; `undefined` if it can be one. */
export function unfitToken(text: string): string | undefined {
  if (text === "") return "is empty";
  if (text.length > MAX_TOKEN_BYTES) return `is longer than ${MAX_TOKEN_BYTES / 1024} KiB`;
  if (!/^[A-Za-z0-9._~+/-]+=*$/.test(text)) return "holds characters that no bearer token has";
  return undefined;
}

/** The challenge of a 401 or 407 that asks for a token (RFC 6750 §3). */
export const BEARER_CHALLENGE = 'Bearer realm="culvert"';

/** A token from a header, and the cluster that was named with it. */
export interface PresentedToken {
  readonly token: string;
  readonly cluster?: string;
}

/**
 * Parses `Authorization` of an agent, or `Proxy-Authorization` of a caller: `Bearer TOKEN`, or `Basic CLUSTER:TOKEN`
 * for tools without Bearer (RFC 7617 §2). Gives `undefined` if no token was sent. `unfitToken` says whether it can be
 * one. (What an agent sends to a proxy is in shared/dial/auth.)
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

/** Claims of a JWT (RFC 7519 §4.1) whose signature has not been verified. */
interface UnverifiedClaims {
  readonly issuer: unknown;
  readonly audiences: readonly unknown[];
  /** `undefined` if it is absent or not a valid date. */
  readonly expiresAt: Date | undefined;
  /** `undefined` if it is absent or not a valid date. */
  readonly issuedAt: Date | undefined;
}

/** The claims of a JWT; `undefined` if the token is not a JWT. */
export function unverifiedClaims(token: string): UnverifiedClaims | undefined {
  const parts = token.split(".");
  if (parts.length !== 3) return undefined;
  const claims = jsonOf(Buffer.from(parts[1] ?? "", "base64url"));
  if (typeof claims !== "object" || claims === null) return undefined;
  const { iss: issuer, aud, exp, iat } = claims as Readonly<Record<string, unknown>>;
  return { issuer, audiences: aud === undefined ? [] : [aud].flat(), expiresAt: dateOf(exp), issuedAt: dateOf(iat) };
}

/** A NumericDate (RFC 7519 §2), if it is a valid date. */
function dateOf(seconds: unknown): Date | undefined {
  const date = typeof seconds === "number" ? new Date(seconds * 1_000) : undefined;
  return date === undefined || Number.isNaN(date.getTime()) ? undefined : date;
}
