import { randomUUID } from "node:crypto";
import { constants, type IncomingHttpHeaders } from "node:http2";
import { setTimeout as sleep } from "node:timers/promises";
import { type AgentIdentifiers, isEmpty, parseIdentifiers } from "../../shared/address/agent-identifiers.ts";
import { isAgentId } from "../../shared/link/control.ts";
import { PeerViolation } from "../../shared/link/link-events.ts";
import type { IncomingConnection } from "../../shared/listen/incoming-connection.ts";
import { CulvertError, printable, toCulvertError } from "../../shared/outcomes.ts";
import { authoritiesOf } from "../../shared/tls/authorities.ts";
import { joinHellos } from "../agents/admission.ts";
import { recordTunnel } from "../agents/agent-record.ts";
import { type AgentHost, authenticateAgent, hostOf } from "../agents/authenticate-agent.ts";
import type { AgentsContext } from "../agents/context.ts";
import { CertificateWatch, TokenWatch } from "../agents/credential-watch.ts";
import { AGENT_LINES, claimedIdentifiers, requireAcceptedHello } from "../agents/run-tunnel.ts";
import type { PortConnections } from "../listeners/port-connections.ts";
import { type AgentPlace, refused } from "../tunnels/agent-places.ts";
import type { Credential } from "../tunnels/links.ts";
import { PROBE_MS } from "../tunnels/opening.ts";
import type { ConnectedAgent } from "../tunnels/tunnel.ts";
import { AgentCall } from "./agent-call.ts";
import { KonnectivityTunnel } from "./konnectivity-tunnel.ts";
import { logRefusal, statusOf } from "./refusal.ts";
import { openSession } from "./session.ts";

type AgentConnection = IncomingConnection<AgentHost>;

/** The only method that agents call. */
const METHOD = "/AgentService/Connect";

/** A refusal names so many CAs of a bundle. */
const MAX_NAMES = 3;

/** The facts about itself that a konnectivity-agent puts into the metadata of its call. */
interface Metadata {
  readonly agentId: string;
  readonly identifiers: AgentIdentifiers;
  readonly software: string;
}

/**
 * One connection of a konnectivity-agent, from its preface to its end.
 *
 * ```
 *  HTTP/2 session ─▶ call ─▶ authenticate ─▶ permitted ─▶ place ─▶ the tunnel, to its end
 *                              └────────────────┴───────────┴─▶ a gRPC status with a sentence
 * ```
 */
export function serveAgent(connection: AgentConnection, port: PortConnections, context: AgentsContext): void {
  const session = openSession(connection, context);
  session.once("stream", (stream, headers) => {
    const call = new AgentCall(stream, headers, session);
    // An agent makes one call.
    session.on("stream", (another) => another.on("error", () => {}).close(constants.NGHTTP2_REFUSED_STREAM));
    void serveCall(call, connection, port, context);
  });
}

async function serveCall(
  call: AgentCall,
  connection: AgentConnection,
  port: PortConnections,
  context: AgentsContext,
): Promise<void> {
  let credential: Credential | undefined;
  try {
    const host = hostOf(connection);
    credential = await authenticate(call.headers, connection, host, port, context);
    requirePermitted(call.headers, connection, host, context);
    joinHellos({ host, credential }, connection);
    port.leaveWaiting(connection);
    const metadata = metadataOf(call.headers);
    welcome(call, context);
    if (!(await settled(call, metadata, credential, host))) return;
    const place = reserve(metadata, credential, host, context);
    host.tunnels.hellos.leave(connection.socket);
    await runTunnel(call, metadata, place, credential, connection, host, context);
  } catch (error) {
    const { status, sentence } = statusOf(error);
    if (!call.isOver) logRefusal(error, connection, credential, context);
    port.leaveWaiting(connection);
    call.refuse(status, sentence);
  }
}

async function authenticate(
  headers: IncomingHttpHeaders,
  connection: AgentConnection,
  host: AgentHost,
  port: PortConnections,
  { options }: AgentsContext,
): Promise<Credential> {
  const { handshakeTimeoutMs: deadlineMs, maxTokenVerifications: most } = options;
  const { address } = connection.source;
  const onVerifying = (): void => port.setAside(connection);
  try {
    return await authenticateAgent(connection, headers, host, { address, deadlineMs, most, onVerifying });
  } catch (error) {
    throw toCulvertError(error).fault === "certificate_missing" ? notShown(host) : error;
  }
}

/** Go's TLS shows a certificate only to a server that names its CA: one of another CA seems to be missing. */
function notShown({ ca = "", verifier }: AgentHost): CulvertError {
  const names = authoritiesOf(ca)
    .slice(0, MAX_NAMES)
    .map(({ subject }) => `"${subject.replaceAll("\n", ", ")}"`);
  const token = verifier === undefined ? "" : ", and no token came (--service-account-token-path)";
  const sentence = `no client certificate that is accepted came: --agent-cert must be signed by ${names.join(" or ")}`;
  return new CulvertError("unauthenticated", `${sentence}${token}`, { fault: "certificate_missing" });
}

/** This agent may come from there, and in this protocol. */
function requirePermitted(
  headers: IncomingHttpHeaders,
  { source }: AgentConnection,
  host: AgentHost,
  { draining }: AgentsContext,
): void {
  const objection = host.objection(source.address);
  if (objection !== undefined) throw objection;
  const { name } = host.tunnels;
  if (!host.takesKonnectivity) {
    const sentence = `cluster "${name}" takes culvert agents only (--konnectivity-agents, agents.konnectivity)`;
    throw refused("forbidden", sentence);
  }
  if (host.innerTls === "always") {
    throw refused(
      "forbidden",
      `agents of cluster "${name}" come with inner TLS only, which konnectivity-agent has not`,
    );
  }
  if (headers[":path"] !== METHOD || headers[":method"] !== "POST") {
    throw new CulvertError("bad_target", `this is the port of agents, which call ${METHOD}`);
  }
  if (draining()) throw new CulvertError("draining", "this server is shutting down");
}

/** Throws a refusal of metadata that no agent sends. */
function metadataOf(headers: IncomingHttpHeaders): Metadata {
  const { agentid: agentId = "", agentidentifiers: query = "", "user-agent": client = "" } = headers;
  if (typeof agentId !== "string" || !isAgentId(agentId)) {
    throw refused("badHello", "the call needs one agentID of letters, digits and . _ : - (--agent-id)");
  }
  return { agentId, identifiers: identifiersOf(query), software: printable(`konnectivity-agent (${client})`, 80) };
}

function identifiersOf(query: string | string[]): AgentIdentifiers {
  try {
    return parseIdentifiers([query].flat().filter((text) => text !== ""));
  } catch (error) {
    throw refused("badHello", `--agent-identifiers: ${(error as Error).message}`);
  }
}

/** By these headers an agent finds out whether it knows this server, and how many there are. */
function welcome(call: AgentCall, { options, servers }: AgentsContext): void {
  call.respond({ serverid: options.serverId, servercount: String(servers.value ?? 1) });
}

/**
 * An agent with `--sync-forever`, or an agent that looks for further servers, calls repeatedly, and closes the
 * connection when it reads the name of a server that it has: on a slow line after seconds. Its tunnel must not notice.
 * Returns false if the call is over.
 *
 * A tunnel whose agent answers nothing meanwhile has lost it: the newcomer takes its place.
 */
async function settled(
  call: AgentCall,
  { agentId }: Metadata,
  { identity }: Credential,
  { tunnels }: AgentHost,
): Promise<boolean> {
  const holder = [...tunnels.tunnels()].find(({ agent, leaving }) => agent.agentId === agentId && !leaving);
  if (holder === undefined || holder.suspended || holder.agent.identity !== identity) return true;
  const answered = holder.roundTrip().then((ms) => ms !== undefined);
  const isOver = Promise.race([call.ended, sleep(PROBE_MS)]).then(() => call.isOver);
  if (await isOver) return false;
  const isThere = await Promise.race([answered, sleep(0, false)]);
  if (!isThere) return true;
  const sentence = `another running process uses agent id "${agentId}" (from ${holder.remote}): give each its own --agent-id`;
  throw refused("alreadyConnected", sentence);
}

/** The place of its tunnel. From here to its `join` nothing is waited for, so that no change of trust is missed. */
function reserve(
  { agentId, identifiers }: Metadata,
  credential: Credential,
  host: AgentHost,
  { draining }: AgentsContext,
): { readonly place: AgentPlace; readonly instance: string } {
  if (draining()) throw refused("draining", "this server is shutting down");
  const cluster = host.tunnels;
  requireAcceptedHello({}, credential, cluster, host);
  // It does not say which process it is: each call is another one.
  const candidate = { agentId, instance: randomUUID(), identity: credential.identity };
  cluster.pace.begin(candidate);
  claimedIdentifiers({ identifiers }, credential, cluster);
  return { place: cluster.places.reserve(candidate), instance: candidate.instance };
}

/** Runs a tunnel to its end, and logs what happens to it. */
async function runTunnel(
  call: AgentCall,
  { agentId, identifiers, software }: Metadata,
  { place, instance }: { readonly place: AgentPlace; readonly instance: string },
  { identity, peer, token }: Credential,
  { remote }: AgentConnection,
  { tunnels: cluster }: AgentHost,
  context: AgentsContext,
): Promise<void> {
  const { options, throttledLog } = context;
  const agent: ConnectedAgent = { agentId, instance, identity, peer, software, probe: false, identifiers };
  const id = `${options.serverId}/${instance}`;
  const line = { cluster: cluster.name, agent: agentId, tunnel: id, remote, protocol: "konnectivity" };
  const log = (level: "info" | "warn", fields: Readonly<Record<string, unknown>>, message: string) =>
    throttledLog.write(level, { ...line, ...fields }, message, { kind: `${identity}\n${agentId}`, lines: AGENT_LINES });
  const { maxStreams, sessionBudget: budget, keepaliveMs } = options;
  const bounds = { maxStreams, budget, keepaliveMs, memory: cluster.memory };
  const tunnel = new KonnectivityTunnel(agent, id, remote, call, bounds, () => cluster.onChanged());
  place.join(tunnel);
  const recordEnd = recordTunnel(tunnel, cluster.name, context);
  log("info", { identity, software, ...(!isEmpty(identifiers) && { identifiers }) }, "tunnel opened");
  const onUnavailable = (reason: string, detail: string) => log("warn", { reason, detail }, "token not verified");
  const watch = token && new TokenWatch(token, tunnel, onUnavailable, "renewedWhenIdle");
  const ends = peer && new CertificateWatch(peer.notAfter, tunnel);

  const reason = await tunnel.closedWith;
  place.leave();
  watch?.close();
  ends?.close();
  if (reason instanceof PeerViolation) cluster.pace.offended(agent);
  recordEnd(reason, tunnel.resetForMemory);
  if (reason === undefined) log("info", {}, "tunnel closed");
  else log("warn", { reason: printable(reason.message) }, "tunnel lost");
}
