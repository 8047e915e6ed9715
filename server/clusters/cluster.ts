import type { IdentityPattern } from "../../shared/tls/identity.ts";
import type { CrlFile } from "../../shared/tls/revocation-list.ts";
import type { TlsPair } from "../../shared/tls/tls-material.ts";
import type { Limits } from "./document.ts";
import type { SourceCidrs } from "./source-cidrs.ts";
import type { TargetRules } from "./targets.ts";
import type { TokenTrust } from "./token-document.ts";

/** The two kinds of peers that a cluster accepts, as a document names them. */
export const SIDES = ["agents", "callers"] as const;
export type SideName = (typeof SIDES)[number];

/** One workload cluster as its document describes it: read, validated and frozen. A changed document makes a new object. */
export interface Cluster {
  readonly name: string;
  /** Where it is written, for messages. */
  readonly file: string;
  /** Its number in a file of several documents. */
  readonly document?: number;
  readonly agents: AgentSide;
  readonly callers: CallerSide;
  /** Which targets its callers may ask for, judged before the tunnel. */
  readonly targets: TargetRules;
  readonly limits: Limits;
  /** It is known, its names too, and nobody gets in. */
  readonly suspended: boolean;
}

/** What the agents' and the callers' port know of a cluster. Left out in the document: what the server's flags say. */
export interface ClusterSide {
  /** Canonical names, `*.x` among them; empty: reachable on this port only while it is the one cluster. */
  readonly sni: readonly string[];
  /** What the server shows. */
  readonly certificate?: TlsPair;
  /** CA certificates (PEM) that the clients' certificates must come from. */
  readonly ca?: string;
  /** CRLs of those CAs; absent: the server's (`--client-crl-file`), as far as they are of those CAs. */
  readonly crl?: CrlFile;
  /** Empty: as without `--agent-identities` or `--caller-identities`. */
  readonly identities: readonly IdentityPattern[];
  /** With a token and neither `ca` nor `identities`, the server's own CA says nothing here: only tokens do. */
  readonly token?: TokenTrust;
  /** Absent: from anywhere. */
  readonly sourceCIDRs?: SourceCidrs;
}

/** Whether agents may, or must, prove themselves by TLS over the link, where the TLS outside ends in between. */
export type InnerTlsRule = "never" | "auto" | "always";

export interface AgentSide extends ClusterSide {
  readonly maxAgents?: number;
  /** Absent: `--inner-tls`. */
  readonly innerTls?: InnerTlsRule;
}

export interface CallerSide extends ClusterSide {
  /** Absolute path of the cluster's own unix socket. */
  readonly uds?: string;
}

/** In what a new version of a cluster differs from the one before. */
export interface ClusterChanges {
  readonly agents: SideChanges;
  readonly callers: SideChanges;
  readonly maxAgents: boolean;
  readonly uds: boolean;
  readonly allow: boolean;
  readonly deny: boolean;
  readonly limits: boolean;
  readonly suspended: boolean;
}

export interface SideChanges {
  /** `sni`: the name maps of the store have them already. */
  readonly names: boolean;
  /** Certificate, key or CA: new handshakes need a new TLS context. */
  readonly material: boolean;
  /** CA, identities, token, sourceCIDRs or inner TLS: who was let in has to be judged again. */
  readonly trust: boolean;
  /** Other CRLs: whoever they revoke has to go. */
  readonly crl: boolean;
}
