import { type Claim, shown } from "./claim.ts";
import { type Cluster, SIDES, type SideName } from "./cluster.ts";

/** The cluster's own name, its socket and the names by which clients ask for it. */
export function nameClaims(cluster: Cluster): Claim[] {
  const { name, callers } = cluster;
  const names = SIDES.flatMap((side) => cluster[side].sni.flatMap((sni) => serverNameClaims(cluster, side, sni)));
  const claims = [new NameClaim(cluster, { kind: "the name", name, cure: "give one of them another" }), ...names];
  if (callers.uds !== undefined) {
    const cure = "each cluster needs a socket of its own";
    claims.push(new NameClaim(cluster, { kind: "callers.uds", name: callers.uds, cure }));
  }
  return [...claims, ...anyNameClaims(cluster)];
}

interface Named {
  readonly kind: string;
  readonly name: string;
  readonly cure: string;
  /** The wildcard that covers the name. Names under one wildcard stand beside each other, and none beside the wildcard. */
  readonly wildcard?: string;
}

class NameClaim implements Claim {
  readonly key: string;
  readonly cluster: Cluster;
  readonly shares: string | undefined;
  readonly #kind: string;
  readonly #name: string;
  readonly #cure: string;

  constructor(cluster: Cluster, { kind, name, cure, wildcard }: Named) {
    this.key = `${kind} ${wildcard ?? name}`;
    this.cluster = cluster;
    this.shares = wildcard === undefined ? undefined : "under the wildcard";
    this.#kind = kind;
    this.#name = name;
    this.#cure = cure;
  }

  outlines(): undefined {}

  overlaps(): boolean {
    return true;
  }

  objection(other: NameClaim): string {
    const whose = shown(other.cluster);
    const state = this.#name === other.#name ? `is taken by ${whose}` : `overlaps "${other.#name}" of ${whose}`;
    return `${this.#kind} "${this.#name}" ${state}: ${this.#cure}.`;
  }
}

/** A star stands for one label (names.ts), so that one wildcard at most covers a name. */
function serverNameClaims(cluster: Cluster, side: SideName, name: string): NameClaim[] {
  const cure = "a name leads to one cluster, so remove it from one of them";
  const named = { kind: `${side}.sni`, name, cure };
  const dot = name.indexOf(".");
  const own = new NameClaim(cluster, named);
  return name.startsWith("*.") || dot < 0
    ? [own]
    : [own, new NameClaim(cluster, { ...named, wildcard: `*${name.slice(dot)}` })];
}

/** Whoever has no name is found under any, as long as it is the only cluster. */
class AnyNameClaim implements Claim {
  readonly key: string;
  readonly cluster: Cluster;
  readonly shares: string | undefined;
  readonly #cure: string;

  constructor(
    cluster: Cluster,
    side: SideName,
    { nameless, cure }: { readonly nameless: boolean; readonly cure: string },
  ) {
    this.key = `any ${side}.sni`;
    this.cluster = cluster;
    this.shares = nameless ? undefined : "with names of its own";
    this.#cure = cure;
  }

  outlines(): undefined {}

  overlaps(): boolean {
    return true;
  }

  objection(other: AnyNameClaim): string {
    const who =
      this.shares === undefined
        ? `this one has none beside ${shown(other.cluster)}`
        : `${shown(other.cluster)} has none and answers to every name now`;
    return `with several clusters each needs ${this.#cure}, and ${who}.`;
  }
}

function anyNameClaims(cluster: Cluster): Claim[] {
  const { agents, callers } = cluster;
  const unreached = callers.sni.length === 0 && callers.uds === undefined;
  return [
    new AnyNameClaim(cluster, "agents", { nameless: agents.sni.length === 0, cure: "agents.sni" }),
    new AnyNameClaim(cluster, "callers", { nameless: unreached, cure: "callers.sni or callers.uds" }),
  ];
}
