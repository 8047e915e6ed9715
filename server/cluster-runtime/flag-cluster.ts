import { resolve } from "node:path";
import { ConfigError } from "../../shared/config/options.ts";
import { type IdentityPattern, parsePattern } from "../../shared/tls/identity.ts";
import type { Cluster } from "../clusters/cluster.ts";
import { TargetRules } from "../clusters/targets.ts";
import type { TokenTrust } from "../clusters/token-document.ts";
import { DEFAULT_CLUSTER, type ServerOptions } from "../options/options.ts";
import type { ClusterSource } from "./clusters.ts";

/** The one cluster of a server without `--clusters`: what its flags say. */
export function flagCluster(
  options: Pick<
    ServerOptions,
    | "agentIdentities"
    | "callerIdentities"
    | "udsName"
    | "authenticationAudience"
    | "agentNamespace"
    | "agentServiceAccount"
    | "kubeconfig"
  >,
): ClusterSource {
  const cluster: Cluster = {
    name: DEFAULT_CLUSTER,
    file: "the flags",
    agents: {
      sni: [],
      identities: patterns("--agent-identities", options.agentIdentities),
      ...(options.authenticationAudience !== "" && { token: tokenReview(options) }),
    },
    callers: {
      sni: [],
      identities: patterns("--caller-identities", options.callerIdentities),
      ...(options.udsName === "" ? {} : { uds: options.udsName }),
    },
    targets: new TargetRules([], []),
    limits: {},
    suspended: false,
  };
  const names = { find: () => cluster };
  return {
    clusters: new Map([[cluster.name, cluster]]),
    agentNames: names,
    callerNames: names,
    listen: (listener) => listener.onAdded(cluster),
  };
}

/** Konnectivity's four flags. */
function tokenReview(
  options: Pick<ServerOptions, "authenticationAudience" | "agentNamespace" | "agentServiceAccount" | "kubeconfig">,
): TokenTrust {
  const { authenticationAudience: audience, agentNamespace, agentServiceAccount, kubeconfig } = options;
  return {
    ...{ kind: "tokenReview", audience, agentNamespace, agentServiceAccount },
    ...(kubeconfig !== "" && { kubeconfig: resolve(kubeconfig) }),
  };
}

function patterns(option: string, texts: readonly string[]): IdentityPattern[] {
  try {
    return texts.map(parsePattern);
  } catch (error) {
    throw new ConfigError([`${option}: ${(error as Error).message}.`], { cause: error });
  }
}
