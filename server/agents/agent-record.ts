import { type CredentialFault, CulvertError } from "../../shared/outcomes.ts";
import { CloseCode, LinkRefused } from "../../shared/wire/handshake.ts";
import type { AuditedParty } from "../audit/audit-trail.ts";
import type { ServerContext } from "../tunnels/context.ts";
import { partyOf, type Tunnel } from "../tunnels/tunnel.ts";

// Metrics and audit trail of agents: those that get no tunnel, and the tunnels of the others.

/** An agent that gets no tunnel. */
interface RefusedAgent {
  /** Empty: it came to no cluster. */
  readonly cluster: string;
  readonly remote: string;
  readonly by: AuditedParty;
  /** An HTTP status, a close code or a word of ours. */
  readonly code: string | number;
  readonly rule: string;
  readonly reason: string;
  /** Its name among the last refusals; absent: it is not one of them. */
  readonly from?: string;
  readonly fault?: CredentialFault | undefined;
}

export function recordRefusal(
  { cluster, remote, by, code, rule, reason, from, fault }: RefusedAgent,
  { metrics, audit }: ServerContext,
): void {
  const certificate = by.claimed;
  metrics.agentRefused(String(code), from === undefined ? undefined : { cluster, from, reason, certificate, fault });
  audit()?.refused({ kind: "agent", cluster: cluster || undefined, by, source: remote }, rule, reason);
}

/** Records that a tunnel has begun; returns what records its end. */
export function recordTunnel(
  { id, agent, remote }: Tunnel,
  cluster: string,
  { metrics, audit }: ServerContext,
): (reason: Error | undefined, resetForMemory: number) => void {
  const { agentId, probe } = agent;
  if (!probe) metrics.tunnelOpened(cluster);
  const facts = { kind: "agent", cluster, by: partyOf(agent), source: remote, agent: agentId, tunnel: id } as const;
  const entry = audit()?.allowed(facts);
  return (reason, resetForMemory) => {
    if (!probe) metrics.tunnelClosed(cluster, reason === undefined ? "closed" : "lost", resetForMemory);
    const outcome = reason === undefined ? "ok" : "agent_lost";
    if (entry !== undefined) audit()?.ended(entry, { outcome, reason: reason?.message });
  };
}

/** `alreadyConnected` → `already_connected`, as outcomes are written. */
const CLOSE_RULES = new Map<number | undefined, string>(
  Object.entries(CloseCode).map(([name, code]) => [
    code,
    name.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`),
  ]),
);

/** The word by which an agent is refused: an outcome, the name of a close code, or `hello`: it broke off before. */
export function ruleOf(error: unknown): string {
  if (error instanceof LinkRefused) return CLOSE_RULES.get(error.closeCode) ?? "internal";
  return error instanceof CulvertError ? error.code : "hello";
}
