import { parseTarget } from "../../shared/address/target.ts";
import { Backoff } from "../../shared/basics/backoff.ts";
import { buildInfo } from "../../shared/basics/program.ts";
import type { MemoryAccount } from "../../shared/limits/memory-account.ts";
import type { MemoryShare } from "../../shared/limits/memory-pool.ts";
import type { Carrier } from "../../shared/link/carrier.ts";
import type { Hello } from "../../shared/link/control.ts";
import { type CarrierDialOptions, type Dialled, dialAgain, dialCarrier } from "../../shared/link/dial.ts";
import { Link } from "../../shared/link/link.ts";
import { LinkKey } from "../../shared/link/proof.ts";
import { CulvertError, printable } from "../../shared/outcomes.ts";
import type { ThrottledLog } from "../../shared/runtime/throttled-log.ts";
import type { PeerIdentity } from "../../shared/tls/identity.ts";
import { HANDSHAKE_VERSION, LinkRefused } from "../../shared/wire/handshake.ts";
import { Session } from "../../shared/yamux/session.ts";
import type { Stream } from "../../shared/yamux/stream.ts";
import type { ServerContext } from "../tunnels/context.ts";
import type { Location } from "./directory.ts";
import { type PeerTrust, PeerWatch } from "./peer-trust.ts";

/** The path of the upgrade between servers. */
export const PEER_PATH = "/culvert/v1/peer";

/** Time after which a link without streams is closed, ms. */
const IDLE_MS = 60_000;
/** The longest wait between two attempts to resume a link, ms: streams pause meanwhile. */
const RESUME_CAP_MS = 800;
/** A carrier that was resumed and lost again within this time, ms, has carried nothing. */
const SHORT_LIFE_MS = 1_000;

/** This server, as other servers meet it. */
export interface OwnServer {
  readonly trust: PeerTrust;
  /** Random for each start of this process. */
  readonly instance: string;
  /** The account of links to and from peers. Streams are paid for by their clusters. */
  readonly memory: MemoryShare;
}

/**
 * A link that this server has dialled to a peer, and its session. Only the side that has dialled opens streams, so two
 * servers that ask each other have two links. It outlives its connections as an agent's link does.
 */
export class PeerLink {
  readonly location: Location;
  /** The certificate of the peer. */
  readonly watch: PeerWatch;
  /** The streams of each cluster on this link. */
  readonly shares: LinkShares;
  readonly #link: Link;
  readonly #key: LinkKey;
  readonly #session: Session;
  readonly #own: OwnServer;
  readonly #context: ServerContext;
  readonly #resumes = new Backoff({ baseMs: 50, capMs: RESUME_CAP_MS }, SHORT_LIFE_MS);
  /** Streams that are of no use while the peer cannot be reached: who has the other end finds another way. */
  readonly #impatient = new Set<Stream>();
  #dialling: AbortController | undefined;
  #timer: NodeJS.Timeout | undefined;
  #idle: NodeJS.Timeout | undefined;
  #resumedAt = performance.now();

  private constructor(
    location: Location,
    { carrier, welcome, remote }: Dialled,
    identity: PeerIdentity,
    own: OwnServer,
    context: ServerContext,
    onClosed: (link: PeerLink) => void,
  ) {
    const { replayBuffer: replayBytes, maxWindow, sessionBudget: budget, maxStreams } = context.options;
    const { graceMs, initialWindow, freshWindow = initialWindow } = welcome;
    const pool = own.memory;
    const log = peerLog(context.throttledLog, location.serverId, location.address);
    const link = new Link(welcome.link, remote, carrier, { graceMs, replayBytes, pool: pool.links });
    this.location = location;
    this.shares = new LinkShares(location.serverId, maxStreams);
    this.#link = link;
    this.#key = LinkKey.parse(welcome.key);
    this.#own = own;
    this.#context = context;
    this.watch = new PeerWatch(identity, own.trust, {
      onAsk: () => this.changeCarrier(),
      onUntrusted: (reason) => this.destroy(reason),
    });
    link.watch({
      // The peer's certificates have changed, or it wants to see ours again.
      onControl: ({ type }) => {
        if (type === "rotate") this.changeCarrier();
      },
      onSuspended: ({ message }) => {
        log("warn", "peer link suspended", { streams: this.streamCount, reason: printable(message) });
        this.#resumes.ended("lost", performance.now() - this.#resumedAt);
        this.#resumeIn(this.#resumes.failures <= 2 ? 0 : this.#resumes.waitMs());
      },
      onResumed: () => {
        this.#resumedAt = performance.now();
        log("info", "peer link resumed");
      },
      onClosed: () => this.#stop(),
    });
    this.#session = new Session(
      "client",
      link,
      {
        onStream: (stream) => stream.reset(), // only the side that has dialled opens streams
        onClosed: (reason) => {
          onClosed(this);
          if (reason === undefined) log("info", "peer link closed");
          else log("warn", "peer link lost", { reason: printable(reason.message) });
        },
      },
      { initialWindow, freshWindow, maxWindow, budget, maxStreams, pool, littleFrameCost: 0 },
    );
    this.#watchIdle();
  }

  /** The id of this server. */
  get ownId(): string {
    return this.#context.options.serverId;
  }

  /** Rejects with the error of the dial. */
  static async dial(
    location: Location,
    own: OwnServer,
    context: ServerContext,
    onClosed: (link: PeerLink) => void,
  ): Promise<PeerLink> {
    const { identity, ...dialled } = await dialPeer(location, own, context, (to) =>
      dialCarrier({ ...to, hello: () => hello(own, context) }),
    );
    const { serverId } = dialled.welcome;
    if (serverId !== location.serverId) {
      const reason = `server "${serverId}" is at this address now`;
      dialled.carrier.destroy(new Error(reason));
      throw new Error(reason);
    }
    return new PeerLink(location, dialled, identity, own, context, onClosed);
  }

  /** Whether a new stream would be taken soon. */
  get isUsable(): boolean {
    return !this.#link.closed && !this.#link.suspended && !this.#session.draining;
  }

  get suspended(): boolean {
    return this.#link.suspended;
  }

  get streamCount(): number {
    return this.#session.streamCount;
  }

  /** Opens a stream whose head is sent with the SYN, and which the account pays for. Throws `YamuxError`. */
  open(head: Buffer, account?: MemoryAccount): Stream {
    return this.#session.open(head, account);
  }

  /**
   * The stream is destroyed when the connection was lost and the first dial for another one has failed. A connection
   * that was only cut costs it nothing.
   */
  endWhenUnreachable(stream: Stream): void {
    if (stream.destroyed) return;
    this.#impatient.add(stream);
    stream.once("close", () => this.#impatient.delete(stream));
  }

  /** As `Link.lastByteAt`. */
  get lastByteAt(): number {
    return this.#link.lastByteAt;
  }

  /** Asks for a sign of life: without a byte within `withinMs` the connection is lost. */
  probe(withinMs: number): void {
    this.#link.probe(withinMs);
  }

  /** A new connection with the present certificate while the old one lives: the streams notice nothing. */
  changeCarrier(): void {
    this.#resumeIn(0);
  }

  /** Opens nothing more; ends with the last stream, or after `deadlineMs`. */
  close(deadlineMs: number): Promise<void> {
    return this.#session.close(deadlineMs);
  }

  destroy(reason: Error): void {
    this.#session.destroy(reason);
  }

  #watchIdle(): void {
    let wasIdle = false;
    this.#idle = setInterval(() => {
      if (wasIdle && this.streamCount === 0) void this.close(0);
      wasIdle = this.streamCount === 0;
    }, IDLE_MS / 2).unref();
  }

  #stop(): void {
    this.watch.close();
    clearInterval(this.#idle);
    clearTimeout(this.#timer);
    this.#dialling?.abort();
  }

  #endImpatient({ message }: Error): void {
    for (const stream of this.#impatient) {
      stream.destroy(new Error(`server "${this.location.serverId}" cannot be reached: ${message}`));
    }
  }

  #resumeIn(ms: number): void {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => void this.#resume(), ms);
  }

  async #resume(): Promise<void> {
    if (this.#link.closed || this.#dialling !== undefined) return;
    const dialling = new AbortController();
    this.#dialling = dialling;
    const link = this.#link;
    let named = 0;
    const words = (): Hello => {
      link.acks.hold(); // the peer could free what the old connection acknowledges from now on
      named = link.received;
      return { ...hello(this.#own, this.#context), resume: this.#key.prove({ link: link.id, received: named }) };
    };
    try {
      const { carrier, remote, resumed, identity } = await dialPeer(this.location, this.#own, this.#context, (to) =>
        dialAgain({ ...to, hello: words, signal: dialling.signal }),
      );
      if (link.closed || !this.#key.isAnswer(link.id, resumed)) {
        carrier.destroy();
        throw new Error("the answer to the resume does not prove that it comes from the same server");
      }
      this.watch.renewed(identity);
      link.resume(carrier, remote, { peerReceived: resumed.received, named });
      this.#resumes.connected();
      link.acks.now();
    } catch (error) {
      if (link.closed) return;
      link.acks.release();
      if (!link.suspended) this.#resumes.attemptFailed();
      // The peer has answered, and has no such link any more.
      else if (error instanceof LinkRefused) link.destroy(error);
      else if (isRefused(error)) {
        link.destroy(new Error(`its process has ended: ${(error as Error).message}`, { cause: error }));
      } else {
        this.#endImpatient(error as Error);
        this.#resumes.attemptFailed();
        this.#resumeIn(this.#resumes.waitMs());
      }
    } finally {
      this.#dialling = undefined;
    }
  }
}

/**
 * Nobody listens at the peer's address. A server listens there as long as it has links of peers, so its process is
 * gone, and the link with it.
 */
function isRefused(error: unknown): boolean {
  return (error as NodeJS.ErrnoException).code === "ECONNREFUSED";
}

function hello({ instance }: OwnServer, { options: { serverId: agentId } }: ServerContext): Hello {
  const software = `culvert-server/${buildInfo().version}`;
  return { type: "hello", version: HANDSHAKE_VERSION, agentId, instance, software };
}

/** Dials the peer, and returns what was reached with the identity in its certificate. */
async function dialPeer<T extends { readonly carrier: Carrier }>(
  { address }: Location,
  { trust }: OwnServer,
  { options: { keepaliveMs, agentAckTimeoutMs: timeoutMs } }: ServerContext,
  dial: (to: CarrierDialOptions) => Promise<T>,
): Promise<T & { readonly identity: PeerIdentity }> {
  let identity: PeerIdentity | undefined;
  const tls = trust.dialTls((verified) => {
    identity = verified;
  });
  const reached = await dial({ ...parseTarget(address), path: PEER_PATH, tls, keepaliveMs, timeoutMs });
  if (identity === undefined) {
    reached.carrier.destroy();
    throw new Error("the peer has shown no certificate");
  }
  return { ...reached, identity };
}

/** Lines of one peer in a minute: it may be lost and come back some times. */
const LINES = 20;
/** The directory, which is not trusted, may name any number of servers: they share the lines of one tenant. */
export const PEERS = "other servers";

/** The log of a link to or from the server with this id, which can open and end links all the time. */
export function peerLog(throttled: ThrottledLog, peer: string, remote: string) {
  const own = { tenant: PEERS, kind: peer, lines: LINES };
  return (level: "info" | "warn", message: string, fields: Readonly<Record<string, unknown>> = {}): void =>
    throttled.write(level, { peer, remote, ...fields }, message, own);
}

const RETRY_AFTER_MS = 1_000;

/**
 * The streams of each cluster on one link to a peer. Clusters share the link, and `--max-streams` bounds all its
 * streams together: a cluster gets as many as it leaves free, so that the others always find room. One alone has half
 * of them at most, each of two a third.
 */
export class LinkShares {
  readonly #serverId: string;
  readonly #maxStreams: number;
  #total = 0;
  readonly #open = new Map<string, number>();

  /** @param maxStreams how many streams the link carries at once */
  constructor(serverId: string, maxStreams: number) {
    this.#serverId = serverId;
    this.#maxStreams = maxStreams;
  }

  /** Counts one stream until the function that it returns is called. Throws `limited`. */
  join(cluster: string): () => void {
    const open = this.#open.get(cluster) ?? 0;
    if (open >= Math.max(1, this.#maxStreams - this.#total)) {
      const sentence = `cluster "${cluster}" has ${open} connections over server "${this.#serverId}", and the link to it keeps room for others (--max-streams): try again later`;
      throw new CulvertError("limited", sentence, { retryAfterMs: RETRY_AFTER_MS });
    }
    this.#open.set(cluster, open + 1);
    this.#total++;
    return () => this.#leave(cluster);
  }

  /** Clusters without a stream are not kept. */
  #leave(cluster: string): void {
    this.#total--;
    const open = this.#open.get(cluster) ?? 0;
    if (open > 1) this.#open.set(cluster, open - 1);
    else this.#open.delete(cluster);
  }

  /** Clusters that have a stream. */
  get size(): number {
    return this.#open.size;
  }
}
