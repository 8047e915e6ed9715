import { isAbsolute } from "node:path";
import { z } from "zod";
import { list, made, orIssue, section, text } from "./schema-parts.ts";

/**
 * Signature algorithms of private keys (RFC 7518 §3.1, RFC 8037). With a shared key, whoever verifies could also sign.
 */
export const ASYMMETRIC: readonly string[] = [
  ...["RS256", "RS384", "RS512", "PS256", "PS384", "PS512"],
  ...["ES256", "ES384", "ES512", "EdDSA", "Ed25519"],
];

const tokenReview = section({
  kubeconfig: text().optional(),
  audience: text(),
  // Any pod can have a token for any audience: whose count has to be said.
  agentNamespace: text(),
  agentServiceAccount: text(),
}).transform((review) => ({ kind: "tokenReview" as const, ...review }));

const jwt = section({
  issuer: text(),
  audience: text(),
  algorithms: list(made(algorithm)).min(1, "is empty: name algorithms, or leave the key out").optional(),
  jwks: made(keyLocation),
  jwksCa: text().optional(),
  subjects: list(text()).min(1, "is empty, so nobody could come: name at least one subject, * as wildcard"),
}).transform(
  orIssue(({ jwksCa, ...token }) => {
    const jwks: KeyLocation = jwksCa === undefined ? token.jwks : believed(token.jwks, jwksCa);
    return { kind: "jwt" as const, ...token, jwks };
  }),
);

/** How a token of an agent or a caller is judged. `*` is a wildcard in agentNamespace, agentServiceAccount and subjects. */
export const tokenDocument = section({ tokenReview: tokenReview.optional(), jwt: jwt.optional() }).transform(
  ({ tokenReview, jwt }, { issues }): TokenTrust => {
    const one = tokenReview ?? jwt;
    if (one !== undefined && (tokenReview === undefined || jwt === undefined)) return one;
    issues.push({ code: "custom", message: "needs either tokenReview or jwt", input: { tokenReview, jwt } });
    return z.NEVER;
  },
);

export type JwtTrust = z.output<typeof jwt>;

/** The tokens that a side accepts. Paths are as they were written in the document, and absolute in a `Cluster`. */
export type TokenTrust = z.output<typeof tokenReview> | JwtTrust;

function algorithm(value: string): string {
  if (ASYMMETRIC.includes(value)) return value;
  throw new Error(`"${value}" cannot prove who made a token; write one of ${ASYMMETRIC.join(", ")}`);
}

/** A path, or a URL as text: `URL` objects cannot be compared. `caFile`: whom to believe there. */
type KeyLocation = { readonly file: string } | { readonly url: string; readonly caFile?: string };

function keyLocation(value: string): KeyLocation {
  if (!/^[a-z][a-z0-9+.-]*:/i.test(value) || isAbsolute(value)) return { file: value };
  if (URL.canParse(value) && new URL(value).protocol === "https:") return { url: value };
  throw new Error("needs the path of a file or a URL that begins with https://");
}

function believed(jwks: KeyLocation, caFile: string): KeyLocation {
  if ("url" in jwks) return { ...jwks, caFile };
  throw new Error("has jwksCa, which is for a jwks at an https:// URL: leave it out");
}
