import type { TurnQueue } from "../../shared/basics/turn-queue.ts";
import { printable } from "../../shared/outcomes.ts";
import { permits, subjectOf } from "../../shared/tls/identity.ts";
import { endUnclaimable } from "../tunnels/agent-places.ts";
import type { Tunnel } from "../tunnels/tunnel.ts";
import type { ClusterRuntime } from "./cluster-runtime.ts";
import type { ClusterVirtualHost } from "./virtual-host.ts";

/** Time in which an agent proves by a new handshake that it is still trusted, ms: one resume, and one that was lost. */
const PROOF_MS = 10_000;

/** Asks every agent of a cluster for a new connection. Its streams do not notice. */
export function rotateAgents({ tunnels }: ClusterRuntime, reason: string): void {
  for (const tunnel of tunnels.tunnels()) tunnel.rotate(reason);
}

/** Ends the tunnels of a cluster whose certificates are revoked now. The others do not notice. */
export function endRevokedAgents({ agents, tunnels }: ClusterRuntime, turns: TurnQueue): void {
  for (const tunnel of tunnels.tunnels()) {
    turns.run(() => {
      if (!tunnel.closed && isRevoked(tunnel, agents)) endAsRevoked(tunnel);
    });
  }
}

/** Ends the tunnels of agents that may not claim any more what they do. */
export function reverifyClaims({ tunnels }: ClusterRuntime): void {
  for (const tunnel of tunnels.tunnels()) endUnclaimable(tunnel, tunnels);
}

/**
 * Applies changed trust to the tunnels of a cluster. Agents that are no longer among the identities end now. Only a new
 * handshake can tell whether a certificate is good by the present CA (RFC 5280 §6.1), so the others are asked for one,
 * and end unless it succeeds in time.
 */
export function reverifyAgents({ cluster, agents, tunnels }: ClusterRuntime): void {
  for (const tunnel of tunnels.tunnels()) {
    const { peer } = tunnel;
    if (peer !== undefined && !permits(agents.identities, "agent", peer)) {
      tunnel.destroy(new Error(`${printable(subjectOf(peer), 120)} is no longer among ${agents.rule}`));
    } else if (isRevoked(tunnel, agents)) endAsRevoked(tunnel);
    else tunnel.requireProof(`the trust of cluster "${cluster.name}" has changed`, PROOF_MS);
  }
}

function isRevoked({ peer }: Tunnel, { trust }: ClusterVirtualHost): boolean {
  return peer !== undefined && trust.lists.length > 0 && trust.status(peer.chain) === "revoked";
}

function endAsRevoked(tunnel: Tunnel): void {
  tunnel.destroy(new Error("the agent's certificate is revoked"));
}
