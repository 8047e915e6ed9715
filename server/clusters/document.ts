import { isAbsolute } from "node:path";
import * as z from "zod";
import { parseServerNamePattern } from "../../shared/address/server-name.ts";
import { formatSize, inRange, parseBoolean, parseSize } from "../../shared/config/values.ts";
import { list, orIssue, parsed, section, text } from "../../shared/documents/schema.ts";
import { parsePattern } from "../../shared/tls/identity.ts";
import { INNER_TLS_RULES, type InnerTlsRule, SourceCidrs, TargetRules } from "./access-rules.ts";
import { Destinations } from "./destinations.ts";
import { Claims, parseStrategy } from "./routing-rules.ts";

/**
 * Signature algorithms of private keys (RFC 7518 §3.1, RFC 8037). With a shared key, every verifier could also sign.
 */
export const ASYMMETRIC: readonly string[] =
  "RS256 RS384 RS512 PS256 PS384 PS512 ES256 ES384 ES512 EdDSA Ed25519".split(" ");

// ── tokens ──────────────────────────────────────────────────────────────────────────────────────────────────────────

const tokenReview = section({
  kubeconfig: text().optional(),
  audience: text(),
  // Any pod can get a token for any audience, so the accounts have to be named.
  agentNamespace: text(),
  agentServiceAccount: text(),
}).transform((review) => ({ kind: "tokenReview" as const, ...review }));

const jwt = section({
  issuer: text(),
  audience: text(),
  algorithms: list(parsed(algorithm)).min(1, "is empty: name algorithms, or leave the key out").optional(),
  jwks: parsed(keyLocation),
  jwksCa: text().optional(),
  subjects: list(text()).min(1, "is empty, so nobody could come: name at least one subject, * as wildcard"),
}).transform(
  orIssue(({ jwksCa, ...token }) => {
    const jwks: KeyLocation = jwksCa === undefined ? token.jwks : withCa(token.jwks, jwksCa);
    return { kind: "jwt" as const, ...token, jwks };
  }),
);

/** The rule for tokens of agents or callers. `*` is a wildcard in agentNamespace, agentServiceAccount and subjects. */
const token = section({ tokenReview: tokenReview.optional(), jwt: jwt.optional() }).transform(
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

/** A path, or a URL as text, because `URL` objects cannot be compared. `caFile` verifies the server of the URL. */
type KeyLocation = { readonly file: string } | { readonly url: string; readonly caFile?: string };

function keyLocation(value: string): KeyLocation {
  if (!/^[a-z][a-z0-9+.-]*:/i.test(value) || isAbsolute(value)) return { file: value };
  if (URL.canParse(value) && new URL(value).protocol === "https:") return { url: value };
  throw new Error("needs the path of a file or a URL that begins with https://");
}

function withCa(jwks: KeyLocation, caFile: string): KeyLocation {
  if ("url" in jwks) return { ...jwks, caFile };
  throw new Error("has jwksCa, which is for a jwks at an https:// URL: leave it out");
}

// ── clusters ────────────────────────────────────────────────────────────────────────────────────────────────────────

const side = {
  sni: list(parsed(parseServerNamePattern))
    .transform((names) => [...new Set(names)])
    .default([]),
  cert: text().optional(),
  key: text().optional(),
  ca: text().optional(),
  crl: text().optional(),
  identities: list(parsed(parsePattern)).default([]),
  token: token.optional(),
  sourceCIDRs: list(text())
    .min(1, "is empty, so nobody could come: name networks, or leave the key out")
    .transform(orIssue((texts) => new SourceCidrs(texts)))
    .optional(),
};

const claim = section({
  identities: list(text()).min(1, "is empty, so nobody could claim this: name at least one identity"),
  hosts: list(text()).default([]),
  cidrs: list(text()).default([]),
  defaultRoute: parsed(parseBoolean).default(false),
}).transform(
  // Each entry is parsed alone, so that the path of a fault names it.
  orIssue((entry) => {
    new Claims([entry]);
    return entry;
  }),
);

const agents = section({
  ...side,
  maxAgents: parsed(count).optional(),
  innerTls: parsed(innerTlsRule).optional(),
  konnectivity: parsed(parseBoolean).optional(),
  strategies: list(parsed(parseStrategy))
    .min(1, "is empty, so no agent could be chosen: name strategies, or leave the key out")
    .optional(),
  strictIdentifiers: parsed(parseBoolean).optional(),
  claims: list(claim)
    .transform(orIssue((texts) => new Claims(texts)))
    .optional(),
});
const callers = section({ ...side, uds: text().optional(), fromClusters: list(parsed(clusterName)).optional() });

/** The least number of bytes per second: one read of a socket, which a smaller bucket would never let pass. */
const LEAST_BYTES = 65_536;
/** The least memory in bytes: what a few connections need to move at all. */
const LEAST_MEMORY = 1024 * 1024;

const limits = section({
  streams: parsed(count).optional(),
  pendingConnects: parsed(count).optional(),
  connectsPerSecond: parsed(count).optional(),
  bytesPerSecond: parsed(sizeOf(LEAST_BYTES)).optional(),
  handshakesPerSecond: parsed(count).optional(),
  memory: parsed(sizeOf(LEAST_MEMORY)).optional(),
});

/** The schema of a document. Its scalars are text, whatever type YAML would give them. */
export const clusterDocument = section({
  name: parsed(clusterName),
  agents: agents.optional().transform(orIssue((given) => withPair(given ?? agents.parse({})))),
  callers: callers.optional().transform(orIssue((given) => withPair(given ?? callers.parse({})))),
  allow: checkedList((text) => new TargetRules([text], [])),
  deny: checkedList((text) => new TargetRules([text], [])),
  allowedDestinations: checkedList((text) => new Destinations([text])),
  limits: limits.default({}),
  suspended: parsed(parseBoolean).default(false),
}).transform(({ allow, deny, allowedDestinations, ...rest }) => ({
  ...rest,
  targets: new TargetRules(allow, deny),
  destinations: new Destinations(allowedDestinations),
}));

/** A cluster as its YAML document describes it; paths are as they were written. */
export type ClusterDocument = z.output<typeof clusterDocument>;

/** Absent limits leave the bounds of the server's flags. */
export type Limits = Readonly<z.output<typeof limits>>;

function clusterName(value: string): string {
  if (/^[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?$/.test(value)) return value;
  throw new Error('needs a name like a DNS label: at most 63 of a-z, 0-9 and "-" inside, such as blue-1');
}

function count(value: string): number {
  if (/^[1-9][0-9]{0,8}$/.test(value)) return Number(value);
  throw new Error("needs a whole number from 1 to 999999999; to let nobody in write suspended: true");
}

function sizeOf(min: number): (value: string) => number {
  return inRange(parseSize, formatSize, { min });
}

function innerTlsRule(value: string): InnerTlsRule {
  const rule = INNER_TLS_RULES.find((known) => known === value);
  if (rule !== undefined) return rule;
  throw new Error("needs never, auto or always");
}

/** A list of texts, each of which is checked alone, so that the path of a fault names it. */
function checkedList(check: (text: string) => unknown) {
  const checked = parsed((text) => {
    check(text);
    return text;
  });
  return list(checked).default([]);
}

function withPair<S extends { cert?: string | undefined; key?: string | undefined }>(given: S): S {
  if ((given.cert === undefined) === (given.key === undefined)) return given;
  const [there, missing] = given.cert === undefined ? ["key", "cert"] : ["cert", "key"];
  throw new Error(`has ${there} without ${missing}: give both, or neither to use the server's own`);
}
