import { deferred } from "../../shared/basics/promises.ts";
import type { MemoryShare } from "../../shared/limits/memory-share.ts";
import type { Link } from "../../shared/link/link.ts";
import { printable } from "../../shared/outcomes.ts";
import type { PeerIdentity } from "../../shared/tls/identity.ts";
import { Session } from "../../shared/yamux/session.ts";
import type { Stream } from "../../shared/yamux/stream.ts";
import type { Transport } from "../../shared/yamux/transport.ts";
import type { ServerOptions } from "../options/options.ts";
import { sessionOptions } from "../tunnels/session-options.ts";
import type { PeerLog } from "./peer-log.ts";
import type { PeerTrust } from "./peer-trust.ts";

/** The server that has opened a stream here. */
export interface FromPeer {
  readonly serverId: string;
  readonly remote: string;
}

/** The part of a link that it uses. */
type AcceptedLink = Pick<Link, keyof Transport | "remote" | "sendControl">;

export interface AcceptedPeerParts {
  readonly serverId: string;
  readonly software: string;
  readonly link: AcceptedLink;
  readonly identity: PeerIdentity;
}

export interface AcceptedPeerDeps {
  readonly options: Pick<ServerOptions, "initialWindow" | "maxWindow" | "sessionBudget" | "maxStreams">;
  readonly trust: Pick<PeerTrust, "objection" | "isRevoked">;
  readonly peerMemory: MemoryShare;
  readonly peerLog: PeerLog;
  onStream(stream: Stream, from: FromPeer): void;
}

/** How often the certificate of a peer is compared with the clock and the CA, ms. */
const CHECK_MS = 30_000;
/** How long a peer may take to connect again with a new certificate, ms. */
const PATIENCE_MS = 10_000;

/** A link that a peer has dialled, and its session: the peer opens streams on it. */
export class AcceptedPeer {
  readonly from: FromPeer;
  /** Resolves when the link has ended. */
  readonly closed: Promise<void>;
  readonly #link: AcceptedLink;
  readonly #session: Session;
  readonly #trust: AcceptedPeerDeps["trust"];
  readonly #timer: NodeJS.Timeout;
  #due: NodeJS.Timeout | undefined;
  #identity: PeerIdentity;

  constructor({ serverId, software, link, identity }: AcceptedPeerParts, deps: AcceptedPeerDeps) {
    const { options, trust, peerMemory, peerLog, onStream } = deps;
    const from = { serverId, remote: link.remote };
    const log = (level: "info" | "warn", more: Readonly<Record<string, unknown>>, message: string) =>
      peerLog.write(level, serverId, { remote: link.remote, ...more }, message);
    this.from = from;
    this.#link = link;
    this.#identity = identity;
    this.#trust = trust;
    const closed = deferred();
    this.closed = closed.promise;
    const onClosed = (reason: Error | undefined): void => {
      clearInterval(this.#timer);
      clearTimeout(this.#due);
      if (reason === undefined) log("info", {}, "peer link closed");
      else log("warn", { reason: printable(reason.message) }, "peer link lost");
      closed.resolve();
    };
    this.#session = new Session(
      "server",
      link,
      { onStream: (stream) => onStream(stream, from), onClosed },
      sessionOptions(options, peerMemory),
    );
    this.#timer = setInterval(() => this.verifyAgain(), CHECK_MS).unref();
    log("info", { software }, "peer link accepted");
  }

  /** It has shown a certificate again. */
  renewed(identity = this.#identity): void {
    this.#identity = identity;
    clearTimeout(this.#due);
    this.#due = undefined;
  }

  /** A peer whose certificate would not be accepted now is asked for a new one, and ends if none comes. */
  verifyAgain(): void {
    const soon = new Date(Date.now() + CHECK_MS);
    const objection = this.#trust.objection(this.#identity, soon);
    if (objection === undefined || this.#due !== undefined) return;
    this.#link.sendControl({ type: "rotate", reason: `the peer's link has to be verified again: ${objection}` });
    this.#due = setTimeout(() => this.#onUnproven(), PATIENCE_MS).unref();
  }

  #onUnproven(): void {
    this.#due = undefined;
    const objection = this.#trust.objection(this.#identity, new Date());
    if (objection === undefined) this.verifyAgain();
    else this.destroy(new Error(objection));
  }

  /** To be called when the CRLs have changed. */
  endIfRevoked(): void {
    if (this.#trust.isRevoked(this.#identity)) this.destroy(new Error("its certificate is revoked"));
  }

  drain(): void {
    this.#session.drain();
  }

  close(deadlineMs: number): Promise<void> {
    return this.#session.close(deadlineMs);
  }

  destroy(reason: Error): void {
    this.#session.destroy(reason);
  }
}
