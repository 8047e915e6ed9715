import { resolve } from "node:path";
import { ConfigError } from "../../shared/config/options.ts";
import { type IdentityPattern, parsePattern } from "../../shared/tls/identity.ts";
import { TargetRules } from "../clusters/access-rules.ts";
import type { Cluster } from "../clusters/cluster.ts";
import { Destinations } from "../clusters/destinations.ts";
import type { TokenTrust } from "../clusters/document.ts";
import { DEFAULT_CLUSTER, type ServerOptions } from "../options/options.ts";
import type { ClusterSource } from "./clusters.ts";

/** The one cluster of a server without `--clusters`, as its flags describe it. */
export function flagCluster(options: ServerOptions): ClusterSource {
  const cluster: Cluster = {
    name: DEFAULT_CLUSTER,
    file: "the flags",
    agents: {
      sni: [],
      identities: patterns("--agent-identities", options.agentIdentities),
      token: tokenReview(options),
    },
    callers: {
      sni: [],
      identities: patterns("--caller-identities", options.callerIdentities),
      uds: options.udsName === "" ? undefined : options.udsName,
    },
    targets: new TargetRules([], []),
    destinations: new Destinations(options.allowedDestination),
    limits: {},
    suspended: false,
  };
  const names = { find: () => cluster };
  return {
    clusters: new Map([[cluster.name, cluster]]),
    names: { agents: names, callers: names },
    listen: (listener) => listener.onAdded(cluster),
  };
}

/** Konnectivity's four flags for tokens of agents. */
function tokenReview(flags: ServerOptions): TokenTrust | undefined {
  const { authenticationAudience: audience, agentNamespace, agentServiceAccount, kubeconfig } = flags;
  if (audience === "") return undefined;
  return {
    kind: "tokenReview",
    audience,
    agentNamespace,
    agentServiceAccount,
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
