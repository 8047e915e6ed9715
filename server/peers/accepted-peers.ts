import type { BySource } from "../../shared/basics/by-source.ts";
import { deferred } from "../../shared/basics/promises.ts";
import type { Hello } from "../../shared/link/control.ts";
import type { Link } from "../../shared/link/link.ts";
import { printable } from "../../shared/outcomes.ts";
import type { PeerIdentity } from "../../shared/tls/identity.ts";
import { CloseCode, LinkRefused } from "../../shared/wire/handshake.ts";
import { Session } from "../../shared/yamux/session.ts";
import type { Stream } from "../../shared/yamux/stream.ts";
import type { Transport } from "../../shared/yamux/transport.ts";
import type { ServerContext } from "../tunnels/context.ts";
import { sessionOptions } from "../tunnels/yamux-tunnel.ts";
import { type OwnServer, peerLog } from "./peer-link.ts";
import { PeerWatch } from "./peer-trust.ts";

/** The server that has opened a stream here; one object for each link. */
export interface FromPeer {
  /** The id that the peer announces: it must not use up the places of another server. */
  readonly serverId: string;
  readonly remote: string;
  /** Its certificate when the link began. */
  readonly identity: PeerIdentity;
  /** Connections of agents that it carries here. */
  carried: number;
}

/** The part of a link that it uses. */
type AcceptedLink = Pick<Link, keyof Transport | "remote" | "sendControl">;

/** This server, as the links that peers have dialled use it. */
export interface DialledServer extends OwnServer {
  /** The peer has opened a stream. */
  onStream(stream: Stream, from: FromPeer): void;
}

/** A link that a peer has dialled, and its session: the peer opens streams on it. */
export class AcceptedPeer implements FromPeer {
  readonly serverId: string;
  readonly remote: string;
  readonly identity: PeerIdentity;
  carried = 0;
  /** Resolves when the link has ended. */
  readonly closed: Promise<void>;
  /** Watches the certificate of the peer. */
  readonly watch: PeerWatch;
  readonly #session: Session;

  constructor(
    { agentId: serverId, software }: Hello,
    link: AcceptedLink,
    identity: PeerIdentity,
    { trust, memory, onStream }: DialledServer,
    { options, throttledLog }: ServerContext,
  ) {
    this.serverId = serverId;
    this.remote = link.remote;
    this.identity = identity;
    const log = peerLog(throttledLog, serverId, link.remote);
    this.watch = new PeerWatch(identity, trust, {
      onAsk: (reason) => link.sendControl({ type: "rotate", reason }),
      onUntrusted: (reason) => this.destroy(reason),
    });
    const closed = deferred();
    this.closed = closed.promise;
    const onClosed = (reason: Error | undefined): void => {
      this.watch.close();
      if (reason === undefined) log("info", "peer link closed");
      else log("warn", "peer link lost", { reason: printable(reason.message) });
      closed.resolve();
    };
    this.#session = new Session(
      "server",
      link,
      { onStream: (stream) => onStream(stream, this), onClosed },
      { ...sessionOptions(options, memory), littleFrameCost: 0 },
    );
    log("info", "peer link accepted", { software: printable(software) });
  }

  close(deadlineMs: number): Promise<void> {
    return this.#session.close(deadlineMs);
  }

  destroy(reason: Error): void {
    this.#session.destroy(reason);
  }
}

/** Maximum number of peers whose links are open: there are fewer servers than this. */
const MAX_PEERS = 1_024;

/**
 * Where all places are taken, ends the oldest link of the network that has most. Throws `LinkRefused` if none has more
 * than the network of the newcomer would have. A server has one link here, and a few while it changes its certificate
 * or restarts; a server that dials repeatedly, or a stolen certificate, must not keep the others out.
 */
export function makeRoom<T extends { destroy(reason: Error): void }>(
  peers: BySource<T>,
  network: string,
  maximum = MAX_PEERS,
): void {
  const { size, fullest, oldestOfFullest } = peers;
  if (size < maximum) return;
  if (fullest <= peers.sizeOf(network) + 1) {
    throw new LinkRefused({ closeCode: CloseCode.limited, reason: `${size} peers are connected, the limit` });
  }
  if (oldestOfFullest === undefined) return;
  peers.delete(oldestOfFullest);
  oldestOfFullest.destroy(new Error(`its network has ${fullest} links here, and its place was needed`));
}
