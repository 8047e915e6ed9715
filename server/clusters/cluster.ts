import { isDeepStrictEqual } from "node:util";
import { canonicalServerName } from "../../shared/address/server-name.ts";
import type { IdentityPattern } from "../../shared/tls/identity.ts";
import type { CrlFile } from "../../shared/tls/revocation-list.ts";
import type { TlsPair } from "../../shared/tls/tls-material.ts";
import type { InnerTlsRule, SourceCidrs, TargetRules } from "./access-rules.ts";
import type { Destinations } from "./destinations.ts";
import type { Limits, TokenTrust } from "./document.ts";
import type { RoutingKeys } from "./routing-rules.ts";

/** The two kinds of peers that a cluster accepts, as a document names them. */
export const SIDES = ["agents", "callers"] as const;
export type SideName = (typeof SIDES)[number];

/**
 * One workload cluster as its document describes it: read and validated. A changed document makes a new object.
 */
export interface Cluster {
  readonly name: string;
  /** Path of its file, for messages. */
  readonly file: string;
  /** Number of the document in a file of several documents. */
  readonly document?: number;
  readonly agents: AgentSide;
  readonly callers: CallerSide;
  /** The targets that its callers may ask for, decided before a tunnel is chosen. */
  readonly targets: TargetRules;
  /** The destinations that its agents may reach through this server. */
  readonly destinations: Destinations;
  readonly limits: Limits;
  /** A suspended cluster keeps its names and accepts nobody. */
  readonly suspended: boolean;
}

/**
 * The part of a document about one kind of peers. The flags of the server apply where the document leaves something
 * out.
 */
export interface ClusterSide {
  /** Canonical names, `*.x` among them. Without names it is reachable on this port only while it is the one cluster. */
  readonly sni: readonly string[];
  /** The certificate that the server shows. */
  readonly certificate?: TlsPair;
  /** CA certificates (PEM) that verify the clients' certificates. */
  readonly ca?: string;
  /** CRLs of those CAs; absent: the server's (`--client-crl-file`), as far as they are of those CAs. */
  readonly crl?: CrlFile;
  /** Empty: as without `--agent-identities` or `--caller-identities`. */
  readonly identities: readonly IdentityPattern[];
  /** With a token and neither `ca` nor `identities`, the CA of the flags does not count. */
  readonly token?: TokenTrust | undefined;
  /** Networks that clients may come from; absent: any. */
  readonly sourceCIDRs?: SourceCidrs | undefined;
}

export interface AgentSide extends ClusterSide, RoutingKeys {
  readonly maxAgents?: number | undefined;
  /** Absent: `--inner-tls`. */
  readonly innerTls?: InnerTlsRule | undefined;
  /** Whether konnectivity-agents may connect; absent: no. */
  readonly konnectivity?: boolean | undefined;
}

export interface CallerSide extends ClusterSide {
  /** Absolute path of the cluster's own unix socket. */
  readonly uds?: string | undefined;
  /** Clusters whose callers may come, too, if they ask for this cluster's name as the target's host. */
  readonly fromClusters?: readonly string[] | undefined;
}

// ── changes ─────────────────────────────────────────────────────────────────────────────────────────────────────────

/** The parts in which a new version of a cluster differs from the last one. */
export interface ClusterChanges {
  readonly agents: SideChanges;
  readonly callers: SideChanges;
  readonly maxAgents: boolean;
  /** Strategies or claims: agents are chosen otherwise, and some may not claim any more what they do. */
  readonly routing: boolean;
  readonly uds: boolean;
  readonly fromClusters: boolean;
  readonly allow: boolean;
  readonly deny: boolean;
  readonly allowedDestinations: boolean;
  readonly limits: boolean;
  readonly suspended: boolean;
}

interface SideChanges {
  /** `sni`; the name maps of the store have it already. */
  readonly names: boolean;
  /** Certificate, key or CA: new handshakes need a new TLS context. */
  readonly material: boolean;
  /** CA, identities, token, sourceCIDRs or inner TLS: admitted peers have to be verified again. */
  readonly trust: boolean;
  /** CRLs: peers whose certificates are revoked now have to go. */
  readonly crl: boolean;
}

/** The differences of two versions of a cluster; `undefined` if there is none. */
export function changesOf(before: Cluster, now: Cluster): ClusterChanges | undefined {
  const agents = sideChanges(before.agents, now.agents);
  const callers = sideChanges(before.callers, now.callers);
  const own = {
    maxAgents: before.agents.maxAgents !== now.agents.maxAgents,
    routing: !isDeepStrictEqual(routingOf(before.agents), routingOf(now.agents)),
    uds: before.callers.uds !== now.callers.uds,
    fromClusters: !isDeepStrictEqual(before.callers.fromClusters, now.callers.fromClusters),
    allow: !isDeepStrictEqual(before.targets.allow, now.targets.allow),
    deny: !isDeepStrictEqual(before.targets.deny, now.targets.deny),
    allowedDestinations: !isDeepStrictEqual(before.destinations.texts, now.destinations.texts),
    limits: !isDeepStrictEqual(before.limits, now.limits),
    suspended: before.suspended !== now.suspended,
  };
  const any = [agents, callers, own].some((part) => Object.values(part).includes(true));
  return any ? { agents, callers, ...own } : undefined;
}

function sideChanges(before: ClusterSide, now: ClusterSide): SideChanges {
  const ca = before.ca !== now.ca;
  return {
    names: !isDeepStrictEqual(before.sni, now.sni),
    material: ca || !isDeepStrictEqual(before.certificate, now.certificate),
    crl: before.crl?.pem !== now.crl?.pem,
    trust: ca || !isDeepStrictEqual(trustOf(before), trustOf(now)),
  };
}

function trustOf({ identities, token, sourceCIDRs, ...rest }: ClusterSide | AgentSide): unknown {
  const innerTls = "innerTls" in rest ? rest.innerTls : undefined;
  const konnectivity = "konnectivity" in rest ? rest.konnectivity : undefined;
  return { identities: identities.map(({ text }) => text), token, sources: sourceCIDRs?.texts, innerTls, konnectivity };
}

function routingOf({ strategies, strictIdentifiers, claims }: AgentSide): unknown {
  return { strategies, strictIdentifiers, claims: claims?.texts };
}

/** The top-level keys of a document that differ. Their values are left out, because they may be secret. */
export function changedKeys(what: ClusterChanges): string[] {
  const { agents, callers, maxAgents, routing, uds, fromClusters, ...own } = what;
  const under = {
    agents: maxAgents || routing || Object.values(agents).includes(true),
    callers: uds || fromClusters || Object.values(callers).includes(true),
    ...own,
  };
  return Object.entries(under).flatMap(([key, differs]) => (differs ? key : []));
}

// ── names ───────────────────────────────────────────────────────────────────────────────────────────────────────────

/** A value that is served under some names of a port. */
interface NamedValue<T> {
  readonly value: T;
  /**
   * Canonical, or `*.` and a canonical name. Without names the value is served under every name while it is the only
   * one.
   */
  readonly names: readonly string[];
}

/**
 * The names of one TLS port: SNI → the value that is served under it. Exact names win over `*.x`, which covers one
 * label as in a Kubernetes Ingress. An unknown name has no value: there is no default.
 */
export class ServerNames<T> {
  /** The only value, served under every name and without one, so that no name has to be read. */
  readonly single: T | undefined;
  readonly #exact = new Map<string, T>();
  /** By the part after the star, with its dot. */
  readonly #wildcards = new Map<string, T>();

  /** No name may be there twice. */
  constructor(entries: readonly NamedValue<T>[]) {
    const [first, ...others] = entries;
    this.single = first !== undefined && others.length === 0 && first.names.length === 0 ? first.value : undefined;
    for (const { names, value } of entries) {
      for (const name of names) {
        if (name.startsWith("*.")) this.#wildcards.set(name.slice(1), value);
        else this.#exact.set(name, value);
      }
    }
  }

  /** `serverName` is as the client spelt it; `undefined` if it sent none. */
  find(serverName: string | undefined): T | undefined {
    if (this.single !== undefined) return this.single;
    const name = serverName === undefined ? undefined : canonicalServerName(serverName).name;
    if (name === undefined) return undefined;
    const dot = name.indexOf(".");
    return this.#exact.get(name) ?? (dot > 0 ? this.#wildcards.get(name.slice(dot)) : undefined);
  }
}
