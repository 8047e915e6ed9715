import { createHash } from "node:crypto";
import type { Cluster } from "./cluster.ts";

/**
 * Something that clusters may not hold together: a name, a socket, a CA that lets anybody in. As with a lock for readers
 * and writers, an exclusive claim stands alone, and others stand beside each other.
 */
export interface Claim {
  readonly key: string;
  readonly exclusive: boolean;
  /** What to tell whoever claims it in vain; `other` holds it. */
  readonly objection: (other: Cluster) => string;
}

/** The CAs (PEM) of the server's flags, for sides that have none of their own. Another object when they are others. */
export interface FlagAuthorities {
  readonly agents?: string | undefined;
  readonly callers?: string | undefined;
}

export const NO_FLAG_AUTHORITIES: FlagAuthorities = {};

/** What a cluster claims does not change as long as the flags' CAs stay. */
const known = new WeakMap<FlagAuthorities, WeakMap<Cluster, readonly Claim[]>>();

export function claimsOf(cluster: Cluster, flags: FlagAuthorities): readonly Claim[] {
  const byCluster = known.get(flags) ?? new WeakMap<Cluster, readonly Claim[]>();
  known.set(flags, byCluster);
  const found = byCluster.get(cluster);
  if (found !== undefined) return found;
  const claims = [
    ...nameClaims(cluster),
    ...anyNameClaims(cluster),
    ...trustClaims(cluster, flags),
    ...tokenClaims(cluster),
  ];
  byCluster.set(cluster, claims);
  return claims;
}

function nameClaims({ name, agents, callers }: Cluster): Claim[] {
  const alone = (key: string, cure: string): Claim => ({
    key,
    exclusive: true,
    objection: (other) => `${key} is taken by ${shown(other)}: ${cure}.`,
  });
  const remove = "a name leads to one cluster, so remove it from one of them";
  return [
    alone(`the name "${name}"`, "give one of them another"),
    ...agents.sni.map((sni) => alone(`agents.sni "${sni}"`, remove)),
    ...callers.sni.map((sni) => alone(`callers.sni "${sni}"`, remove)),
    ...(callers.uds === undefined
      ? []
      : [alone(`callers.uds ${callers.uds}`, "each cluster needs a socket of its own")]),
  ];
}

/** Whoever has no name is found under any, as long as it is the only cluster. */
function anyNameClaims({ agents, callers }: Cluster): Claim[] {
  const claim = (side: string, nameless: boolean, cure: string): Claim => ({
    key: `any ${side}.sni`,
    exclusive: nameless,
    objection: (other) => {
      const who = nameless ? "this one has none" : `${shown(other)} has none and answers to every name now`;
      return `with several clusters each needs ${cure}, and ${who}.`;
    },
  });
  return [
    claim("agents", agents.sni.length === 0, "agents.sni"),
    claim("callers", callers.sni.length === 0 && callers.uds === undefined, "callers.sni or callers.uds"),
  ];
}

/** Two clusters may believe the same CA only if identities tell whose a certificate is (design: "Trust"). */
function trustClaims({ agents, callers }: Cluster, flags: FlagAuthorities): Claim[] {
  const bySocketOnly = callers.uds !== undefined && callers.sni.length === 0;
  return (["agents", "callers"] as const).flatMap((side) => {
    const { ca, identities, token } = side === "agents" ? agents : callers;
    if (
      ca === undefined &&
      ((token !== undefined && identities.length === 0) || (side === "callers" && bySocketOnly))
    ) {
      return [];
    }
    const ofFlags = flags[side] ?? "";
    const keys = anchors(ca ?? ofFlags).map((anchor) => `the CA ${anchor}`);
    // Where the server has none, nobody's certificate counts: there is nothing to share.
    if (ca === undefined && ofFlags !== "") keys.push(`the server's CA for ${side}`);
    const which = ca === undefined ? `${side}.ca is left out, and the server's is` : `the CA in ${side}.ca is`;
    const open = identities.length === 0;
    return keys.map((key) => ({
      key,
      exclusive: open,
      objection: (other: Cluster) => {
        const who = open ? `${side}.identities is missing here` : `${shown(other)} has no identities for it`;
        return `${which} also that of ${shown(other)}, and ${who}: without them a certificate of one cluster would open the other.`;
      },
    }));
  });
}

/** Nor the same tokens: by one issuer's keys and for one audience, names have to tell whose a token is. */
function tokenClaims({ agents, callers }: Cluster): Claim[] {
  return (["agents", "callers"] as const).flatMap((side) => {
    const { token } = side === "agents" ? agents : callers;
    if (token === undefined) return [];
    const whose =
      token.kind === "jwt"
        ? [
            "file" in token.jwks ? token.jwks.file : token.jwks.url,
            token.issuer,
            token.audience,
            [...token.subjects].sort(),
          ]
        : [token.kubeconfig ?? "in-cluster", token.audience, token.agentNamespace, token.agentServiceAccount];
    return [
      {
        key: `the tokens ${JSON.stringify(whose)}`,
        exclusive: true,
        objection: (other: Cluster) =>
          `${side}.token takes the same tokens as ${shown(other)}, and so each would open the other: give each its own audience or its own names.`,
      },
    ];
  });
}

/** The CAs of a bundle, by the bytes of each certificate; taking them apart would cost a second with a thousand clusters. */
export function anchors(pem: string): string[] {
  const blocks = pem.match(/-----BEGIN CERTIFICATE-----[^-]+-----END CERTIFICATE-----/g) ?? [];
  return blocks.map((block) => createHash("sha256").update(block.replace(/\s+/g, "")).digest("base64url"));
}

function shown({ name, file, document }: Cluster): string {
  return `cluster "${name}" (${file}${document === undefined ? "" : `, document ${document}`})`;
}
