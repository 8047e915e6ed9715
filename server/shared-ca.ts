import { readFileSync } from "node:fs";
import { certificates } from "../shared/net/tls-material.ts";
import type { ServerOptions } from "./options.ts";

type TrustOptions = Pick<ServerOptions, "serverCaCert" | "clusterCaCert" | "callerIdentities" | "agentIdentities">;

/**
 * The warning of a server whose two CA files share a certificate while a list of identities is missing: then only
 * Konnectivity's names keep an agent's certificate from opening the callers' port (design: "Trust").
 */
export function sharedCaWarning(options: TrustOptions): string | undefined {
  const { serverCaCert, clusterCaCert, callerIdentities, agentIdentities } = options;
  if (serverCaCert === "" || clusterCaCert === "") return undefined;
  const missing = [
    ...(callerIdentities.length === 0 ? ["--caller-identities"] : []),
    ...(agentIdentities.length === 0 ? ["--agent-identities"] : []),
  ];
  if (missing.length === 0) return undefined;
  const agents = new Set(fingerprints(clusterCaCert));
  if (!fingerprints(serverCaCert).some((fingerprint) => agents.has(fingerprint))) return undefined;
  return `callers and agents come from the same CA: give ${missing.join(" and ")}, or a certificate of one role may open the other's port`;
}

function fingerprints(caFile: string): string[] {
  return certificates(readFileSync(caFile, "utf8")).map(({ fingerprint256 }) => fingerprint256);
}
