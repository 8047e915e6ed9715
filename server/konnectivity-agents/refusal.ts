import type { GrpcStatus } from "../../shared/konnectivity/grpc-call.ts";
import type { IncomingConnection } from "../../shared/listen/incoming-connection.ts";
import {
  agentStatus,
  CulvertError,
  type OutcomeCode,
  outcome,
  printable,
  toCulvertError,
} from "../../shared/outcomes.ts";
import { claimedBy } from "../../shared/tls/identity.ts";
import { CloseCode, LinkRefused } from "../../shared/wire/handshake.ts";
import { recordRefusal, ruleOf } from "../agents/agent-record.ts";
import type { AgentHost } from "../agents/authenticate-agent.ts";
import type { AgentsContext } from "../agents/context.ts";
import { AGENT_LINES } from "../agents/run-tunnel.ts";
import type { Credential } from "../tunnels/links.ts";
import { partyOf } from "../tunnels/tunnel.ts";

// Why a konnectivity-agent gets no tunnel: the refusals of all agents, as statuses of gRPC.

const BY_OUTCOME: Partial<Record<OutcomeCode, GrpcStatus>> = {
  bad_target: "unimplemented",
  unauthenticated: "unauthenticated",
  forbidden: "permissionDenied",
  limited: "resourceExhausted",
  overloaded: "resourceExhausted",
  draining: "unavailable",
};

const BY_CLOSE_CODE: Readonly<Record<number, GrpcStatus>> = {
  [CloseCode.badHello]: "invalid",
  [CloseCode.unauthenticated]: "unauthenticated",
  [CloseCode.forbidden]: "permissionDenied",
  [CloseCode.alreadyConnected]: "alreadyExists",
  [CloseCode.duplicate]: "alreadyExists",
  [CloseCode.limited]: "resourceExhausted",
  [CloseCode.draining]: "unavailable",
};

/** The status and the sentence for the agent. A fault of this server is only in its own log. */
export function statusOf(error: unknown): { readonly status: GrpcStatus; readonly sentence: string } {
  if (error instanceof LinkRefused) {
    return { status: BY_CLOSE_CODE[error.closeCode ?? 0] ?? "internal", sentence: error.reason };
  }
  const { code, message } = toCulvertError(error);
  const status = BY_OUTCOME[code] ?? "internal";
  return { status, sentence: status === "internal" ? "a fault of this server: its log has it" : message };
}

/** Counts and logs an agent that was refused, as those of culvert are. */
export function logRefusal(
  error: unknown,
  { socket, remote, source, host }: IncomingConnection<AgentHost>,
  credential: Credential | undefined,
  context: AgentsContext,
): void {
  const { log, throttledLog } = context;
  const { status, sentence } = statusOf(error);
  const cluster = host?.tunnels.name ?? "";
  const identity = credential?.identity ?? "";
  const code = error instanceof LinkRefused ? (error.closeCode ?? 0) : agentStatus(toCulvertError(error).code);
  const reason = printable(sentence);
  const by = credential === undefined ? { claimed: claimedBy(socket) } : partyOf(credential);
  const from = identity === "" ? source.address : identity;
  const fault = error instanceof CulvertError ? error.fault : undefined;
  recordRefusal({ cluster, remote, by, code, rule: ruleOf(error), reason, from, fault }, context);
  if (status === "internal") log.error({ err: error, identity, remote }, "agent refused");
  const level = error instanceof CulvertError ? outcome(error.code).level : "warn";
  const line = { remote, cluster, ...(identity && { identity }), code, reason, protocol: "konnectivity" };
  const kind = identity === "" ? `${code}, konnectivity` : identity;
  throttledLog.write(level, line, "agent refused", { kind, ...(identity && { lines: AGENT_LINES }) });
}
