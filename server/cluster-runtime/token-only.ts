import type { ClusterRuntime } from "./cluster-runtime.ts";

/**
 * The warning about a cluster whose agents come with a token only, although `--cluster-ca-cert` is given: by its document
 * that CA does not count there, and whoever has a certificate of it is refused.
 */
export function tokenOnlyWarning({ cluster, agents }: ClusterRuntime): string | undefined {
  if (!agents.passesOverFlagCa) return undefined;
  return `agents of cluster "${cluster.name}" (${cluster.file}) come with a token only: --cluster-ca-cert does not count where a document has agents.token and neither agents.identities nor agents.ca`;
}
