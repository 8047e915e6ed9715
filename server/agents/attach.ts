import type { Socket } from "node:net";
import type { WebSocket } from "ws";
import { answerHello, openCarrier, orRefuse, receiveHello } from "../../shared/link/accept.ts";
import type { Carrier } from "../../shared/link/carrier.ts";
import type { Hello, OuterHello, Welcome } from "../../shared/link/control.ts";
import { PeerFault } from "../../shared/link/inner-tls.ts";
import { Link } from "../../shared/link/link.ts";
import type { IncomingConnection } from "../../shared/listen/incoming-connection.ts";
import { agentStatus, CulvertError, printable } from "../../shared/outcomes.ts";
import { claimedBy } from "../../shared/tls/identity.ts";
import { CloseCode, isAlreadyConnected, LinkRefused } from "../../shared/wire/handshake.ts";
import { refused } from "../tunnels/agent-places.ts";
import type { ClusterTunnels } from "../tunnels/cluster-tunnels.ts";
import type { AcceptedResume, Credential } from "../tunnels/links.ts";
import { partyOf } from "../tunnels/tunnel.ts";
import { type Admission, type AgentPeer, HandshakeDeadline, requireFirstHand } from "./admission.ts";
import { recordRefusal, ruleOf } from "./agent-record.ts";
import { attachInside } from "./attach-inside.ts";
import { type AgentHost, CarriedConnection } from "./authenticate-agent.ts";
import type { AgentsContext } from "./context.ts";
import { refusalKind } from "./refusal.ts";
import {
  AGENT_LINES,
  linkOptions,
  type ReservedTunnel,
  release,
  requireAcceptedHello,
  reserve,
  runTunnel,
  welcomeFields,
} from "./run-tunnel.ts";

/** The next step after a hello: a new tunnel, the resume of a link, or the handshake of an inner TLS. */
type Plan =
  | {
      readonly kind: "new";
      readonly hello: Hello;
      readonly credential: Credential;
      readonly reserved: ReservedTunnel;
      readonly answer: Welcome;
    }
  | ({
      readonly kind: "resume";
      readonly peerReceived: number;
      /** The agent's credential on this carrier. */
      readonly credential: Credential | undefined;
    } & AcceptedResume)
  | { readonly kind: "inner" };

/**
 * One connection of an agent after its upgrade: the first of a tunnel, until that has ended, or another one for a link
 * that is open.
 *
 * ```
 *  hello ─▶ decide ─┬─▶ new:    welcome ─▶ the tunnel, to its end
 *                   ├─▶ resume: answer ─▶ the link has another carrier
 *                   └─▶ inner:  an inner TLS, in which these steps are repeated (attach-inside.ts)
 * ```
 */
export async function attach(
  ws: WebSocket,
  connection: IncomingConnection,
  admission: Admission,
  context: AgentsContext,
): Promise<void> {
  const { keepaliveMs, helloTimeoutMs } = context.options;
  const { host } = admission;
  const cluster = host.tunnels;
  const { socket } = connection;
  const peer = peerOf(connection, admission, context);
  // Peers without a credential have bounds of their own, and take no places of the cluster.
  const onClosing = (): void => {
    if (peer.identity !== "" || peer.hasProvedLink) cluster.hellos.closing(socket);
  };
  let { deadline } = admission;
  let plan: Plan | undefined;
  try {
    const carrier = openCarrier(ws, socket, { keepaliveMs, turns: context.turns, onClosing });
    const hello = await receiveHello(carrier, Math.min(helloTimeoutMs, deadline?.leftMs ?? Number.POSITIVE_INFINITY));
    plan = orRefuse(carrier, () => decide(hello, admission, peer, context));
    if (plan.kind === "inner") {
      deadline = innerDeadline(carrier, peer, socket, admission, context);
      await attachInside(carrier, peer, deadline, host, context);
      return;
    }
    answerHello(carrier, plan.answer);
    deadline?.end();
    cluster.hellos.leave(socket);
    if (plan.kind === "new") await beginTunnel(carrier, plan, peer, context);
    else offerToLink(carrier, plan, peer);
  } catch (error) {
    onEnded(deadline?.dropped ?? error, ws, peer, cluster, context);
  } finally {
    if (plan?.kind === "new") release(plan.reserved, context.links);
    if (socket.destroyed) cluster.hellos.leave(socket); // it may close much later (shared/listen/paced-close.ts)
  }
}

function peerOf(
  connection: IncomingConnection,
  { credential, shown = "" }: Admission,
  { audit }: AgentsContext,
): AgentPeer {
  const { remote, source } = connection;
  const claimed = audit() === undefined ? undefined : claimedBy(connection.socket);
  return {
    remote,
    address: source.address,
    onlyResumes: connection instanceof CarriedConnection,
    shown,
    identity: credential instanceof CulvertError ? "" : credential.identity,
    party: credential instanceof CulvertError ? { claimed } : partyOf(credential),
  };
}

/**
 * Decides what follows a hello. It reserves the place of a new tunnel, and spends the proof of a resume. Throws the
 * refusal of the hello.
 */
function decide(hello: Hello | OuterHello, admission: Admission, peer: AgentPeer, context: AgentsContext): Plan {
  const { host } = admission;
  if (hello.resume !== undefined) peer.resumes = hello.resume.link;
  const plan =
    "inner" in hello
      ? acceptOuterHello(hello, host, context)
      : acceptHello(hello, requireAuthenticated(admission), peer, host, context);
  peer.hasProvedLink = plan.kind === "resume";
  return plan;
}

/** Runs a new tunnel to its end. */
async function beginTunnel(
  carrier: Carrier,
  { hello, credential, reserved }: Plan & { readonly kind: "new" },
  { remote }: AgentPeer,
  context: AgentsContext,
): Promise<void> {
  const { cluster, entry, graceMs } = reserved;
  const link = new Link(entry.id, remote, carrier, linkOptions(graceMs, cluster, context));
  await runTunnel(link, link, hello, reserved, credential, context);
}

/** A refusal, and an end of the agent or the network, are refusals in the log. Anything else is a fault of ours. */
function onEnded(
  error: unknown,
  ws: WebSocket,
  peer: AgentPeer,
  cluster: ClusterTunnels,
  context: AgentsContext,
): void {
  if (error instanceof LinkRefused || error instanceof CulvertError || error instanceof PeerFault) {
    onRefused(error, peer, cluster, context);
    return;
  }
  ws.terminate();
  const { identity, remote, party: by } = peer;
  const reason = "a fault of this server: its log has it";
  const internal = { code: "internal", rule: "internal", reason, from: identity };
  recordRefusal({ cluster: cluster.name, remote, by, ...internal }, context);
  context.log.error({ err: error, identity, remote }, "agent refused");
}

/** A plain hello requires a credential from the outer TLS or the Authorization header. */
function requireAuthenticated({ credential, host }: Admission): Credential {
  if (credential instanceof CulvertError) {
    const { message: reason, fault } = credential;
    throw new LinkRefused({ closeCode: CloseCode.unauthenticated, reason, fault });
  }
  if (host.innerTls !== "always") return credential;
  const reason = `agents of cluster "${host.tunnels.name}" come with inner TLS only (--inner-tls=always of the agent)`;
  throw refused("forbidden", reason);
}

function acceptHello(
  hello: Hello,
  credential: Credential,
  peer: AgentPeer,
  host: AgentHost,
  context: AgentsContext,
): Plan {
  const cluster = host.tunnels;
  requireAcceptedHello(hello, credential, cluster, host);
  const { agentId, instance, resume } = hello;
  if (resume === undefined) {
    requireFirstHand(peer);
    const reserved = reserve(hello, credential, cluster, context);
    const answer = { ...welcomeFields(reserved, context), key: reserved.entry.key.text };
    return { kind: "new", hello, credential, reserved, answer };
  }
  const owner = { agentId, instance, identity: credential.identity };
  const peerReceived = resume.received;
  return { kind: "resume", peerReceived, credential, ...context.links.resume(cluster.name, resume, owner) };
}

/** An outer hello does not say who sends it: that is known from the inner TLS, or from the proof of a resume. */
function acceptOuterHello({ resume }: OuterHello, host: AgentHost, { links }: AgentsContext): Plan {
  const cluster = host.tunnels;
  if (host.innerTls === "never") {
    const reason = `cluster "${cluster.name}" takes no inner TLS (--inner-tls of the server, agents.innerTls of its document)`;
    throw refused("forbidden", reason);
  }
  if (resume === undefined) return { kind: "inner" };
  const peerReceived = resume.received;
  return { kind: "resume", peerReceived, credential: undefined, ...links.resume(cluster.name, resume, undefined) };
}

/**
 * The deadline of an inner handshake, which takes longer than a resume. The number of handshakes with unauthenticated
 * peers is bounded. An agent that the outer TLS has authenticated keeps its place meanwhile.
 */
function innerDeadline(
  carrier: Carrier,
  { address }: AgentPeer,
  socket: Socket,
  { deadline, host }: Admission,
  { options, innerHandshakes }: AgentsContext,
): HandshakeDeadline {
  const cluster = host.tunnels;
  if (deadline !== undefined) {
    innerHandshakes.enter(cluster.name, address, deadline, (reason) => carrier.abandon(CloseCode.limited, reason));
    return deadline;
  }
  const own = new HandshakeDeadline(socket, options.handshakeTimeoutMs);
  own.moveTo(() => cluster.hellos.leave(socket));
  return own;
}

/** Offers the carrier to the link that it resumes. The tunnel logs the resume. */
function offerToLink(carrier: Carrier, plan: Plan & { readonly kind: "resume" }, { remote }: AgentPeer): void {
  const { entry, link, answer, peerReceived, credential } = plan;
  try {
    if (credential !== undefined) entry.onCredential?.(credential);
    link.offer(carrier, remote, { peerReceived, named: answer.received });
  } catch (error) {
    carrier.destroy(error as Error);
    throw error;
  }
}

/** Values of the metric of refused resumes, by close code. */
const RESUME_REFUSALS: Readonly<Record<number, string>> = {
  [CloseCode.unknownLink]: "unknown_link",
  [CloseCode.foreignLink]: "foreign_link",
  [CloseCode.badProof]: "bad_proof",
  [CloseCode.linkOfAnother]: "link_of_another",
  [CloseCode.badOffset]: "bad_offset",
};

/** After a restart of either end the agent opens a new link at once: nobody has to look at these. */
const EXPECTED = new Set<number>([CloseCode.unknownLink, CloseCode.foreignLink, CloseCode.draining]);

/** Counts and logs an agent that was refused after its upgrade. */
function onRefused(
  error: LinkRefused | CulvertError | PeerFault,
  { remote, address, identity, party: by, shown, resumes = "" }: AgentPeer,
  cluster: ClusterTunnels,
  context: AgentsContext,
): void {
  const { metrics, log, throttledLog } = context;
  const refusal = error instanceof LinkRefused ? error : undefined;
  const reason = printable(refusal?.reason ?? error.message);
  const code = refusal?.closeCode ?? (error instanceof CulvertError ? agentStatus(error.code) : "hello");
  const refused = { cluster: cluster.name, remote, by, code, rule: ruleOf(error), reason };
  if (refusal !== undefined && isAlreadyConnected(refusal)) {
    // It looks for another server behind the same address.
    recordRefusal(refused, context);
    log.debug({ remote, identity, reason }, "agent has a tunnel here");
    return;
  }
  const closeCode = refusal?.closeCode ?? 0;
  const from = identity === "" ? address : identity;
  recordRefusal(EXPECTED.has(closeCode) ? refused : { ...refused, from }, context);
  const line = { remote, cluster: cluster.name, identity, code, reason };
  const resumeRefusal = RESUME_REFUSALS[closeCode];
  // Refusals of a draining server are no fault: the agents reconnect, to it or to another server.
  const level = closeCode === CloseCode.draining ? "info" : "warn";
  if (resumeRefusal !== undefined) {
    metrics.links.resumeFailed(resumeRefusal);
    // An agent whose server was killed asks for its old link several times a minute, until the grace of the link is
    // over.
    throttledLog.write("warn", line, "resume refused", { kind: `${resumes} ${closeCode}`, lines: 1 });
  } else if (identity === "") throttledLog.write(level, line, "agent refused", { kind: refusalKind(code, shown) });
  else throttledLog.write(level, line, "agent refused", { kind: identity, lines: AGENT_LINES });
}
