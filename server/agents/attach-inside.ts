import type { Duplex } from "node:stream";
import type { TLSSocket } from "node:tls";
import { networkOf } from "../../shared/address/network.ts";
import { BySource } from "../../shared/basics/by-source.ts";
import { NO_HELLO } from "../../shared/link/accept.ts";
import type { Carrier } from "../../shared/link/carrier.ts";
import { type InnerHello, parseInnerHello, type Refused } from "../../shared/link/inner-pipe.ts";
import { type InnerServers, type InnerTls, PeerFault, TOO_LONG, UntrustedLink } from "../../shared/link/inner-tls.ts";
import { UNLIMITED } from "../../shared/listen/handshake-budget.ts";
import { agentStatus, CulvertError, printable } from "../../shared/outcomes.ts";
import { LinkRefused } from "../../shared/wire/handshake.ts";
import { ServerNames } from "../clusters/cluster.ts";
import type { ServerOptions } from "../options/options.ts";
import { refused } from "../tunnels/agent-places.ts";
import type { Credential } from "../tunnels/links.ts";
import { type AgentHost, authenticateAgent } from "./authenticate-agent.ts";
import { shownCredential } from "./refusal.ts";
import {
  linkOptions,
  type RunTunnelDeps,
  release,
  requireAcceptedHello,
  reserve,
  runTunnel,
  welcomeFields,
} from "./run-tunnel.ts";

export interface InnerDeps extends RunTunnelDeps {
  readonly options: RunTunnelDeps["options"] & Pick<ServerOptions, "handshakeTimeoutMs" | "maxTokenVerifications">;
  readonly host: Omit<AgentHost, "objection">;
  readonly innerServers: InnerServers;
}

/** The facts about an agent on a connection, for logs and metrics; some become known later. */
export interface AgentPeer {
  readonly remote: string;
  readonly address: string;
  /** Another server carries the connection here, to resume a link. */
  readonly onlyResumes: boolean;
  /** Empty until the agent is authenticated. */
  identity: string;
  /** The kind of credential that it has shown, outside or inside (`shownCredential`). */
  shown: string;
  /** The link that it wants to resume. */
  resumes?: string;
}

/** A carried connection takes more of two servers than one of its own would, so no link begins on it. */
export function requireFirstHand({ onlyResumes }: AgentPeer): void {
  if (!onlyResumes) return;
  throw refused(
    "badHello",
    "another server carries this connection here to resume a link, and no new one begins on it",
  );
}

/** An authenticated agent at the other end of an inner TLS. */
interface InnerAgent {
  readonly link: UntrustedLink;
  readonly inner: InnerTls;
  readonly hello: InnerHello;
  readonly credential: Credential;
}

/**
 * A carrier whose peer is not authenticated: does a TLS handshake over its link, and authenticates the agent inside.
 * Then the carrier is the first of a tunnel, until that has ended; or the agent has only renewed the credential of
 * another link.
 */
export async function attachInside(
  carrier: Carrier,
  peer: AgentPeer,
  deadline: HandshakeDeadline,
  deps: InnerDeps,
): Promise<void> {
  const { host, options } = deps;
  deadline.late = TOO_LONG;
  const link = new UntrustedLink(peer.remote, carrier, linkOptions(0, deps));
  const source = { network: networkOf(peer.address), budget: host.handshakes?.budgetFor(peer.address) ?? UNLIMITED };
  const inner = await deps.innerServers.accept(link, host.tls, deadline.leftMs, source);
  const json = await receiveHello(inner, deadline.leftMs);
  const agent = await orRefuse(inner, async () => {
    requireOwnName(inner.socket, deps);
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
    host.handshakes?.proved(peer.address);
    requireAcceptedHello(hello, credential, deps.cluster, host);
    return { link, inner, hello, credential };
  });
  deadline.end();
  if (agent.hello.renews === undefined) await beginTunnel(agent, deps);
  else await orRefuse(inner, () => renewCredential(agent, deps));
}

/** Sends a refusal inside the inner TLS, where no middlebox reads what it says about the agent. */
async function orRefuse<T>({ pipe }: InnerTls, step: () => T | Promise<T>): Promise<T> {
  try {
    return await step();
  } catch (error) {
    pipe.sendMessage(refusalMessage(error));
    pipe.end();
    throw error;
  }
}

async function receiveHello({ pipe }: InnerTls, deadlineMs: number): Promise<string> {
  const late = setTimeout(() => pipe.destroy(new Error("no hello came inside the inner TLS")), deadlineMs);
  try {
    return await pipe.readMessage();
  } catch (error) {
    throw new PeerFault(error as Error); // the link has ended
  } finally {
    clearTimeout(late);
  }
}

/** A middlebox may have chosen the virtual host; the server name of the inner TLS is the agent's own. */
function requireOwnName({ servername }: TLSSocket, { cluster, host: { side } }: InnerDeps): void {
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

/** Runs a new tunnel to its end. */
async function beginTunnel({ link, inner, hello, credential }: InnerAgent, deps: InnerDeps): Promise<void> {
  const { pipe, key } = inner;
  const admitted = await orRefuse(inner, () => reserve(hello, credential, deps, key));
  try {
    link.assignId(admitted.entry.id, admitted.graceMs);
    pipe.sendMessage(welcomeFields(admitted, deps));
    await runTunnel(link, pipe, hello, admitted, credential, deps);
  } finally {
    release(admitted, deps.links);
  }
}

/**
 * The renewed credential counts like one of a new carrier with its own handshake; streams and link stay as they are.
 */
function renewCredential({ inner: { pipe }, hello, credential }: InnerAgent, { cluster, links }: InnerDeps): void {
  const { agentId, instance, renews = "" } = hello;
  const { identity } = credential;
  links.findForRenewal(cluster.name, renews, { agentId, instance, identity }).onCredential?.(credential);
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

/** Time for a refusal that was just sent to arrive before the connection is destroyed, ms. */
const LINGER_MS = 200;

/**
 * The time within which a carrier must be authenticated: one deadline for all steps, after which the connection is
 * destroyed, also if its refusal is under way. The verification of a token has its own deadline.
 */
export class HandshakeDeadline {
  /** What took too long, where only the deadline has ended it. */
  late = NO_HELLO;
  /** Why the carrier was dropped here, and not by its peer. */
  dropped: LinkRefused | PeerFault | undefined;
  readonly #socket: Duplex;
  #leave: () => void = nothing;
  #until: number;
  #timer: NodeJS.Timeout | undefined;
  #isOver = false;

  constructor(socket: Duplex, ms: number) {
    this.#socket = socket;
    this.#until = performance.now() + ms;
    if (socket.closed) {
      this.end();
      return;
    }
    socket.once("close", this.end);
    this.#start();
  }

  get leftMs(): number {
    return Math.max(1, this.#until - performance.now());
  }

  /** Gives up the place that it had, and calls `leave` when it leaves the new one. */
  occupy(leave: () => void): void {
    this.vacate();
    this.#leave = leave;
    if (this.#isOver) this.vacate();
  }

  /** Gives its place up. */
  vacate(): void {
    const leave = this.#leave;
    this.#leave = nothing;
    leave();
  }

  /** Stops the clock during `verify`. */
  async pausedDuring<T>(verify: () => Promise<T>): Promise<T> {
    const { leftMs } = this;
    clearTimeout(this.#timer);
    try {
      return await verify();
    } finally {
      this.#until = performance.now() + leftMs;
      if (!this.#isOver) this.#start();
    }
  }

  #start(): void {
    this.#timer = setTimeout(this.#onDeadline, this.leftMs + LINGER_MS);
  }

  /** Each step has a timer for the same time, which a busy process may have started too late. */
  readonly #onDeadline = (): void => {
    if (this.#socket.destroyed) {
      this.end();
      return;
    }
    this.dropped ??= new PeerFault(new Error(this.late));
    this.#socket.destroy();
  };

  /** The carrier is authenticated, resumed or closed. */
  readonly end = (): void => {
    if (this.#isOver) return;
    this.#isOver = true;
    clearTimeout(this.#timer);
    this.#socket.off("close", this.end);
    this.vacate();
  };
}

interface CarrierPlace {
  readonly deadline: HandshakeDeadline;
  readonly close: (reason: string) => void;
}

/**
 * The unauthenticated carriers in one stage of their handshake: a bounded number for each cluster. One too many drops
 * the oldest of the network that has most, since a real agent takes a few round trips.
 */
export class UnauthenticatedCarriers {
  readonly #most: number;
  readonly #byCluster = new Map<string, BySource<CarrierPlace>>();

  /** `most`: the bound of one cluster. */
  constructor(most: number) {
    this.#most = most;
  }

  sizeOf(cluster: string): number {
    return this.#byCluster.get(cluster)?.size ?? 0;
  }

  /**
   * Holds one more until its deadline ends or moves on to the next stage. `close` ends the carrier if it is dropped.
   */
  enter(cluster: string, address: string, deadline: HandshakeDeadline, close: (reason: string) => void): void {
    const places = this.#byCluster.get(cluster) ?? new BySource<CarrierPlace>();
    this.#byCluster.set(cluster, places);
    const place = { deadline, close };
    places.add(place, networkOf(address));
    deadline.occupy(() => {
      places.delete(place);
      if (places.size === 0 && this.#byCluster.get(cluster) === places) this.#byCluster.delete(cluster);
    });
    const surplus = places.size > this.#most ? places.oldestOfFullest : undefined;
    if (surplus === undefined) return;
    const reason = `too many agents of cluster "${cluster}" are in their inner TLS handshake (--max-inner-handshakes): the oldest was dropped`;
    surplus.deadline.dropped = refused("limited", reason);
    surplus.deadline.vacate(); // at once: its connection may take a moment to end
    surplus.close(reason);
  }
}

function nothing(): void {}
