import type { TurnQueue } from "../../shared/basics/turn-queue.ts";
import { printable } from "../../shared/outcomes.ts";
import { permits, subjectOf } from "../../shared/tls/identity.ts";
import type { Tunnel } from "../tunnels/tunnel.ts";
import type { ClusterRuntime } from "./cluster-runtime.ts";
import type { ClusterVirtualHost } from "./virtual-host.ts";

/** Asks every agent of a cluster for a new connection; its streams notice nothing. */
export function rotate({ tunnels }: ClusterRuntime, reason: string): void {
  for (const tunnel of tunnels.tunnels()) tunnel.rotate(reason);
}

/** How long an agent may take to prove by a new handshake that it is still trusted, ms: a resume, and one that was lost. */
const PROOF_MS = 10_000;

/** Ends the tunnels of a cluster whose certificates are revoked now. Others notice nothing: nothing speaks against them. */
export function endRevokedAgents({ agents, tunnels }: ClusterRuntime, turns: TurnQueue): void {
  for (const tunnel of tunnels.tunnels()) {
    turns.run(() => {
      if (!tunnel.closed && isRevoked(tunnel, agents)) endAsRevoked(tunnel);
    });
  }
}

function isRevoked({ peer }: Tunnel, { trust }: ClusterVirtualHost): boolean {
  return peer !== undefined && trust.lists.length > 0 && trust.standing(peer.chain) === "revoked";
}

function endAsRevoked(tunnel: Tunnel): void {
  tunnel.destroy(new Error("the agent's certificate is revoked"));
}

/**
 * Judges the tunnels of a cluster whose trust has changed. Who is not among the identities goes now. Whether a
 * certificate stands by the CA that is in use now, only a handshake can tell (RFC 5280 §6.1): each agent is asked for
 * one, and whoever has none in time goes, too.
 */
export function reverifyAgents({ cluster, agents, tunnels }: ClusterRuntime): void {
  for (const tunnel of tunnels.tunnels()) {
    const { peer } = tunnel;
    if (peer !== undefined && !permits(agents.identities, "agent", peer)) {
      tunnel.destroy(new Error(`${printable(subjectOf(peer), 120)} is no longer among ${agents.rule}`));
    } else if (isRevoked(tunnel, agents)) endAsRevoked(tunnel);
    else {
      tunnel.mustProve(`the trust of cluster "${cluster.name}" has changed`, PROOF_MS);
    }
  }
}
