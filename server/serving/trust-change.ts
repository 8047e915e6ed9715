import { permits, subjectOf } from "../../shared/net/identity.ts";
import { printable } from "../../shared/outcomes.ts";
import type { ServedCluster } from "./served-cluster.ts";

/** Asks every agent of a cluster for a new connection; its streams notice nothing. */
export function rotate({ tunnels }: ServedCluster, reason: string): void {
  for (const tunnel of tunnels.tunnels()) tunnel.rotate(reason);
}

/** How long an agent may take to prove by a new handshake that it is still trusted, ms: a resume, and one that was lost. */
const PROOF_MS = 10_000;

/**
 * Judges the tunnels of a cluster whose trust has changed. Who is not among the identities goes now. Whether a
 * certificate stands by the CA that is in use now, only a handshake can tell (RFC 5280 §6.1): each agent is asked for a
 * new connection, and whoever has none in time goes, too.
 */
export function judgeAgain({ cluster, agents, tunnels }: ServedCluster): void {
  const changedAt = performance.now();
  for (const tunnel of tunnels.tunnels()) {
    const { peer } = tunnel.agent;
    if (peer !== undefined && !permits(agents.identities, "agent", peer)) {
      tunnel.destroy(new Error(`${printable(subjectOf(peer), 120)} is no longer among ${agents.rule}`));
    } else {
      tunnel.rotate(`the trust of cluster "${cluster.name}" has changed`);
    }
  }
  setTimeout(() => {
    for (const tunnel of tunnels.tunnels()) {
      // A suspended one proves itself when it comes back, or ends with its grace.
      if (tunnel.provenSince >= changedAt || tunnel.suspended) continue;
      tunnel.destroy(new Error("the trust of its cluster has changed, and it has not come back to prove itself"));
    }
  }, PROOF_MS).unref();
}
