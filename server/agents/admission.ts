import type { Duplex } from "node:stream";
import { networkOf } from "../../shared/address/network.ts";
import { BySource } from "../../shared/basics/by-source.ts";
import { NO_HELLO } from "../../shared/link/accept.ts";
import { PeerFault } from "../../shared/link/inner-tls.ts";
import type { IncomingConnection } from "../../shared/listen/incoming-connection.ts";
import { UNAUTHENTICATED, type Unauthenticated } from "../../shared/listen/unauthenticated-sockets.ts";
import { CulvertError } from "../../shared/outcomes.ts";
import type { LinkRefused } from "../../shared/wire/handshake.ts";
import type { AuditedParty } from "../audit/audit-trail.ts";
import { refused } from "../tunnels/agent-places.ts";
import type { Credential } from "../tunnels/links.ts";
import type { AgentHost } from "./authenticate-agent.ts";

/** The result of the checks before the upgrade. */
export interface Admission {
  /** The virtual host that the agent came to. */
  readonly host: AgentHost;
  /** An error: the agent is not authenticated, and has to prove itself by inner TLS. */
  readonly credential: Credential | CulvertError;
  /** Present while the agent is not authenticated. */
  readonly deadline?: HandshakeDeadline;
  /** Present with `deadline`: see `shownCredential`. */
  readonly shown?: string;
}

/** The facts about an agent on a connection, for logs and metrics; some become known later. */
export interface AgentPeer {
  readonly remote: string;
  readonly address: string;
  /** Whether another server carries the connection here, which may only resume a link. */
  readonly onlyResumes: boolean;
  /** Empty until the agent is authenticated. */
  identity: string;
  /** For the audit trail. */
  party: AuditedParty;
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

/**
 * Counts the connection of an authenticated agent among those whose hello is awaited (`HelloPlaces`). Throws
 * `overloaded` if no more of them may wait.
 */
export function joinHellos({ credential, host }: Admission, { socket }: IncomingConnection): void {
  if (!(credential instanceof CulvertError)) host.tunnels.hellos.join(socket); // otherwise see `deadline`
}

/** Time for a refusal that was just sent to arrive before the connection is destroyed, ms. */
const LINGER_MS = 200;

/**
 * The time within which a carrier must be authenticated. One deadline covers all steps. After it the connection is
 * destroyed, even if a refusal is still being sent. The verification of a token has its own deadline.
 *
 * | stage of a carrier | deadline begins in | counted in, with the bound of a cluster | stage ends in |
 * |---|---|---|---|
 * | unauthenticated, before hello | `UpgradePort` | `beforeHello`: `--max-inner-handshakes` | `attach`, `Carrying` |
 * | unauthenticated, in inner TLS | (goes on) | `innerHandshakes`: the same | `attachInside` |
 * | authenticated, before hello | none, but `--hello-timeout` | `hellos`: `hellosAllowed` | `attach` |
 * | authenticated, in inner TLS as well | `attach` | `hellos`, as before | `attachInside` |
 *
 * The close of the connection ends every stage.
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
 * exceeded, the oldest of the network that has the most of them is dropped: an honest agent needs only a few round
 * trips. They count among all unauthenticated connections of the process, too.
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
