import type { TLSSocket } from "node:tls";
import { networkOf } from "../../shared/address/network.ts";
import type { Carrier } from "../../shared/link/carrier.ts";
import { type InnerHello, parseInnerHello, type Refused } from "../../shared/link/inner-pipe.ts";
import { type InnerTls, PeerFault, TOO_LONG, UntrustedLink } from "../../shared/link/inner-tls.ts";
import { UNLIMITED } from "../../shared/listen/handshake-budget.ts";
import { agentStatus, CulvertError, printable } from "../../shared/outcomes.ts";
import { LinkRefused } from "../../shared/wire/handshake.ts";
import { ServerNames } from "../clusters/cluster.ts";
import { refused } from "../tunnels/agent-places.ts";
import type { Credential } from "../tunnels/links.ts";
import { partyOf } from "../tunnels/tunnel.ts";
import { type AgentPeer, type HandshakeDeadline, requireFirstHand } from "./admission.ts";
import { type AgentHost, authenticateAgent } from "./authenticate-agent.ts";
import type { AgentsContext } from "./context.ts";
import { shownCredential } from "./refusal.ts";
import { linkOptions, release, requireAcceptedHello, reserve, runTunnel, welcomeFields } from "./run-tunnel.ts";

/** An agent that is authenticated by inner TLS, or by a token inside it. */
interface InnerAgent {
  readonly link: UntrustedLink;
  readonly inner: InnerTls;
  readonly hello: InnerHello;
  readonly credential: Credential;
}

/**
 * Authenticates an agent inside inner TLS, on a carrier whose peer is not authenticated. Then begins a tunnel whose
 * first carrier this is, and waits for its end; or renews the credential of another link, if the agent asks for that.
 */
export async function attachInside(
  carrier: Carrier,
  peer: AgentPeer,
  deadline: HandshakeDeadline,
  host: AgentHost,
  context: AgentsContext,
): Promise<void> {
  const { options } = context;
  deadline.late = TOO_LONG;
  const link = new UntrustedLink(peer.remote, carrier, linkOptions(0, host.tunnels, context));
  const source = { network: networkOf(peer.address), budget: host.handshakes?.budgetFor(peer.address) ?? UNLIMITED };
  const inner = await context.innerServers.accept(link, host.tls, deadline.leftMs, source);
  const json = await receiveInnerHello(inner, deadline.leftMs);
  const agent = await orRefuseInside(inner, async () => {
    requireOwnName(inner.socket, host);
    const hello = parseHello(json);
    if (hello.renews === undefined) requireFirstHand(peer);
    else peer.resumes = hello.renews;
    const headers = hello.bearer === undefined ? {} : { authorization: `Bearer ${hello.bearer}` };
    peer.shown = shownCredential(inner.socket, headers, host);
    const bounds = {
      address: peer.address,
      deadlineMs: options.handshakeTimeoutMs,
      most: options.maxTokenVerifications,
    };
    const credential = await deadline.pausedDuring(() => authenticateAgent(inner, headers, host, bounds));
    peer.identity = credential.identity;
    peer.party = partyOf(credential);
    host.handshakes?.proved(peer.address);
    requireAcceptedHello(hello, credential, host.tunnels, host);
    return { link, inner, hello, credential };
  });
  deadline.end();
  if (agent.hello.renews === undefined) await beginInnerTunnel(agent, host, context);
  else await orRefuseInside(inner, () => renewCredential(agent, host, context));
}

/** Runs `step`. If it fails, sends a refusal inside inner TLS, where no middlebox can read it. */
async function orRefuseInside<T>({ pipe }: InnerTls, step: () => T | Promise<T>): Promise<T> {
  try {
    return await step();
  } catch (error) {
    pipe.sendMessage(refusalMessage(error));
    pipe.end();
    throw error;
  }
}

async function receiveInnerHello({ pipe }: InnerTls, deadlineMs: number): Promise<string> {
  const late = setTimeout(() => pipe.destroy(new Error("no hello came inside the inner TLS")), deadlineMs);
  try {
    return await pipe.readMessage();
  } catch (error) {
    throw new PeerFault(error as Error); // the link has ended
  } finally {
    clearTimeout(late);
  }
}

/** Throws if the inner server name is not one of this cluster. A middlebox may have chosen the outer server name. */
function requireOwnName({ servername }: TLSSocket, { tunnels: cluster, side }: AgentHost): void {
  const names = new ServerNames([{ value: cluster, names: side.sni }]);
  if (!servername || names.find(servername) !== undefined) return;
  throw refused(
    "forbidden",
    `this is cluster "${cluster.name}", and inside "${printable(servername, 100)}" was asked for, which is none of its names (agents.sni)`,
  );
}

function parseHello(json: string): InnerHello {
  try {
    return parseInnerHello(json);
  } catch (error) {
    throw refused("badHello", (error as Error).message);
  }
}

/** Runs a new tunnel over inner TLS to its end. */
async function beginInnerTunnel(
  { link, inner, hello, credential }: InnerAgent,
  host: AgentHost,
  context: AgentsContext,
): Promise<void> {
  const { pipe, key } = inner;
  const reserved = await orRefuseInside(inner, () => reserve(hello, credential, host.tunnels, context, key));
  try {
    link.assignId(reserved.entry.id, reserved.graceMs);
    pipe.sendMessage(welcomeFields(reserved, context));
    await runTunnel(link, pipe, hello, reserved, credential, context);
  } finally {
    release(reserved, context.links);
  }
}

/** Replaces the credential of the link that the agent names, as a new carrier would. Its streams are not touched. */
function renewCredential(
  { inner: { pipe }, hello, credential }: InnerAgent,
  host: AgentHost,
  { links }: AgentsContext,
): void {
  const { agentId, instance, renews = "" } = hello;
  const { identity } = credential;
  links.findForRenewal(host.tunnels.name, renews, { agentId, instance, identity }).onCredential?.(credential);
  pipe.sendMessage({ type: "renewed" });
  pipe.end();
}

function refusalMessage(error: unknown): Refused {
  if (error instanceof LinkRefused) {
    const { closeCode, reason, fault, retryAfterMs } = error;
    return { type: "refused", closeCode, reason, fault, retryAfterMs };
  }
  if (!(error instanceof CulvertError)) return { type: "refused", status: 500, reason: "a fault of this server" };
  const { code, message, fault, retryAfterMs } = error;
  return { type: "refused", status: agentStatus(code), reason: printable(message), fault, retryAfterMs };
}
