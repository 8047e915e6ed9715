import type { Duplex } from "node:stream";
import type { TLSSocket } from "node:tls";
import { networkOf } from "../../shared/address/network.ts";
import { BySource } from "../../shared/basics/by-source.ts";
import { NO_HELLO } from "../../shared/link/accept.ts";
import type { Carrier } from "../../shared/link/carrier.ts";
import { type InnerHello, parseInnerHello, type Refused } from "../../shared/link/inner-pipe.ts";
import { type InnerServers, type InnerTls, PeerFault, TOO_LONG, UntrustedLink } from "../../shared/link/inner-tls.ts";
import { UNLIMITED } from "../../shared/listen/handshake-budget.ts";
import { UNAUTHENTICATED, type Unauthenticated } from "../../shared/listen/unauthenticated-sockets.ts";
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
  /** Whether another server carries the connection here, which may only resume a link. */
  readonly onlyResumes: boolean;
  /** Empty until the agent is authenticated. */
  identity: string;
  /** The kind of credential that it has shown, outside or inside (`shownCredential`). */
  shown: string;
  /** The link that it wants to resume. */
  resumes?: string;
  /** It has proved that the link is its own. */
  hasProvedLink?: boolean;
}

/** Throws if the connection is carried: it costs two servers more than a direct one, so no link begins on it. */
export function requireFirstHand({ onlyResumes }: AgentPeer): void {
  if (!onlyResumes) return;
  throw refused(
    "badHello",
    "another server carries this connection here to resume a link, and no new one begins on it",
  );
}

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

/** Runs `step`. If it fails, sends a refusal inside inner TLS, where no middlebox can read it. */
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

/** Throws if the inner server name is not one of this cluster. A middlebox may have chosen the outer server name. */
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

/** Replaces the credential of the link that the agent names, as a new carrier would. Its streams are not touched. */
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
 * The time within which a carrier must be authenticated. One deadline covers all steps. After it the connection is
 * destroyed, even if a refusal is still being sent. The verification of a token has its own deadline.
 */
export class HandshakeDeadline {
  /** The reason that is logged if only the deadline ends the carrier. */
  late = NO_HELLO;
  /** The reason why this server dropped the carrier; absent if the peer closed it. */
  dropped: LinkRefused | PeerFault | undefined;
  readonly #socket: Duplex;
  /** Gives up the place that the carrier has now. */
  #leavePlace: () => void = nothing;
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

  /** The carrier has another place from now on, and leaves the one before; `leave` is called once. */
  moveTo(leave: () => void): void {
    this.leavePlace();
    if (this.#isOver) leave();
    else this.#leavePlace = leave;
  }

  leavePlace(): void {
    const leave = this.#leavePlace;
    this.#leavePlace = nothing;
    leave();
  }

  /** Runs `verify`, and stops the clock meanwhile. */
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

  /** Destroys the connection if no step has ended it: each has a timer of its own, which may have started late. */
  readonly #onDeadline = (): void => {
    if (this.#socket.destroyed) {
      this.end();
      return;
    }
    this.dropped ??= new PeerFault(new Error(this.late));
    this.#socket.destroy();
  };

  /** Ends the deadline, because the carrier is authenticated, resumed or closed. */
  readonly end = (): void => {
    if (this.#isOver) return;
    this.#isOver = true;
    clearTimeout(this.#timer);
    this.#socket.off("close", this.end);
    this.leavePlace();
  };
}

const CROWDED_OUT = "half of the files that this server may open are unauthenticated connections: come back later";

interface CarrierPlace extends Unauthenticated {
  drop(reason: string): void;
}

/**
 * The unauthenticated carriers in one stage of their handshake, a bounded number for each cluster. When the bound is
 * exceeded, the oldest of the network that has most is dropped: an honest agent needs only a few round trips. They
 * count among all unauthenticated connections of the process, too.
 */
export class UnauthenticatedCarriers {
  readonly #most: number;
  readonly #all: Pick<typeof UNAUTHENTICATED, "add" | "delete">;
  readonly #byCluster = new Map<string, BySource<CarrierPlace>>();

  /** `most` is the maximum number of carriers of one cluster. */
  constructor(most: number, all: Pick<typeof UNAUTHENTICATED, "add" | "delete"> = UNAUTHENTICATED) {
    this.#most = most;
    this.#all = all;
  }

  sizeOf(cluster: string): number {
    return this.#byCluster.get(cluster)?.size ?? 0;
  }

  /** Adds a carrier until its deadline ends or moves to the next stage. `close` is called if it is dropped. */
  enter(cluster: string, address: string, deadline: HandshakeDeadline, close: (reason: string) => void): void {
    const places = this.#byCluster.get(cluster) ?? new BySource<CarrierPlace>();
    this.#byCluster.set(cluster, places);
    const place: CarrierPlace = {
      network: networkOf(address),
      onCrowdedOut: () => place.drop(CROWDED_OUT),
      drop: (reason) => {
        deadline.dropped = refused("limited", reason);
        deadline.leavePlace(); // its place is free at once, although its connection may take a moment to end
        close(reason);
      },
    };
    deadline.leavePlace(); // or it would count twice, and might have to make room for itself
    places.add(place, place.network);
    this.#all.add(place);
    deadline.moveTo(() => {
      this.#all.delete(place);
      places.delete(place);
      if (places.size === 0 && this.#byCluster.get(cluster) === places) this.#byCluster.delete(cluster);
    });
    if (places.size <= this.#most) return;
    const reason = `too many agents of cluster "${cluster}" are in their inner TLS handshake (--max-inner-handshakes): the oldest was dropped`;
    places.oldestOfFullest?.drop(reason);
  }
}

function nothing(): void {}
