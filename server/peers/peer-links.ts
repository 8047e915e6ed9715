import { RecentMap } from "../../shared/basics/collections.ts";
import { MAX_TIMER_MS } from "../../shared/basics/timers.ts";
import { DialFault } from "../../shared/faults/faults.ts";
import { CulvertError, printable } from "../../shared/outcomes.ts";
import { CloseCode, LinkRefused } from "../../shared/wire/handshake.ts";
import type { ServerContext } from "../tunnels/context.ts";
import type { Location } from "./directory.ts";
import { type OwnServer, PeerLink, peerLog } from "./peer-link.ts";

/** Links and dials at once. The directory is not trusted, and may name any number of servers. */
const MAX_LINKS = 1_024;
/** Time before a server that could not be reached is dialled again, ms: CONNECTs should not wait for it in turn. */
const REST_MS = 1_000;
const MAX_RESTING = 1_024;

/** The links that this server has dialled to others: one for each, opened when it is needed. */
export class PeerLinks {
  readonly #own: OwnServer;
  readonly #context: ServerContext;
  readonly #links = new Map<string, PeerLink>();
  readonly #dials = new Map<string, Promise<PeerLink>>();
  /** By address: when it may be dialled again, and why not before. */
  readonly #resting = new RecentMap<string, { readonly untilMs: number; readonly error: CulvertError }>(MAX_RESTING);
  readonly #draining = new Set<PeerLink>();
  #closed = false;

  constructor(own: OwnServer, context: ServerContext) {
    this.#own = own;
    this.#context = context;
  }

  get size(): number {
    return this.#links.size;
  }

  /** The id of this server. */
  get ownId(): string {
    return this.#context.options.serverId;
  }

  /** The link to the server with this id, if there is one that takes streams. */
  openTo(serverId: string): PeerLink | undefined {
    const link = this.#links.get(serverId);
    return link?.isUsable === true ? link : undefined;
  }

  /** The link to the server, dialled if there is none. Rejects with `peer_lost`, `overloaded` or `draining`. */
  async get(location: Location): Promise<PeerLink> {
    const { serverId, address } = location;
    const link = this.#links.get(serverId);
    if (link?.isUsable && link.location.address === address) return link;
    if (link?.suspended && link.location.address === address) {
      const sentence = `the connection to server "${serverId}" from server "${this.ownId}" was lost: it is opened again`;
      throw new CulvertError("peer_lost", sentence);
    }
    const resting = this.#resting.get(address);
    if (resting !== undefined && resting.untilMs > performance.now()) throw resting.error;
    const key = `${serverId} ${address}`;
    const underWay = this.#dials.get(key);
    if (underWay !== undefined) return await underWay;
    if (this.#closed) throw new CulvertError("draining", "this server is shutting down");
    if (this.#dials.size + this.#links.size >= MAX_LINKS) {
      throw new CulvertError("overloaded", `${MAX_LINKS} links to other servers are open, the limit: try again`);
    }
    const dial = this.#dial(location).finally(() => this.#dials.delete(key));
    this.#dials.set(key, dial);
    return await dial;
  }

  async #dial(location: Location): Promise<PeerLink> {
    const { serverId, address } = location;
    const log = peerLog(this.#context.throttledLog, serverId, address);
    let link: PeerLink;
    try {
      link = await PeerLink.dial(location, this.#own, this.#context, (closed) => this.#onClosed(closed));
    } catch (error) {
      const reason = printable(whyUnreached(error as Error));
      const isDraining = error instanceof LinkRefused && error.closeCode === CloseCode.draining;
      // The callers of a cluster read it: addresses and certificates of servers are nothing for them.
      const own = this.ownId;
      const unreached = `cannot be reached from server "${own}": the log of "${own}" says why`;
      const sentence = isDraining ? "is shutting down: try again" : unreached;
      const code = isDraining ? "draining" : "peer_lost";
      const failure = new CulvertError(code, `server "${serverId}" ${sentence}`, { cause: error });
      this.#resting.set(address, { untilMs: performance.now() + REST_MS, error: failure });
      log("warn", "peer not reached", { reason });
      throw failure;
    }
    if (this.#closed) {
      link.destroy(new Error("this server is shutting down"));
      throw new CulvertError("draining", "this server is shutting down");
    }
    // The streams of an earlier link, whose server has another address now or is going away, run on to their end.
    const before = this.#links.get(serverId);
    this.#links.set(serverId, link);
    if (before !== undefined) this.#letRunOut(before);
    log("info", "peer link opened");
    return link;
  }

  #letRunOut(link: PeerLink): void {
    this.#draining.add(link);
    void link.close(MAX_TIMER_MS);
  }

  #onClosed(link: PeerLink): void {
    const { serverId } = link.location;
    this.#draining.delete(link);
    if (this.#links.get(serverId) === link) this.#links.delete(serverId);
  }

  /**
   * Certificate or CA have changed. Peers see the new certificate on new connections; new streams go over new links,
   * whose peers are verified by the new CA. A link whose peer it does not accept ends.
   */
  renew(): void {
    for (const link of this.#all()) {
      link.changeCarrier();
      link.watch.verifyAgain();
    }
    for (const [serverId, link] of this.#links) {
      this.#links.delete(serverId);
      this.#letRunOut(link);
    }
  }

  /** Ends the links to servers whose certificates are revoked now. */
  endRevoked(): void {
    for (const link of this.#all()) link.watch.endIfRevoked();
  }

  /** Waits for the streams up to `deadlineMs`, then ends every link. */
  async close(deadlineMs: number): Promise<void> {
    this.#closed = true;
    await Promise.all([...this.#all()].map((link) => link.close(deadlineMs)));
  }

  destroy(reason: Error): void {
    this.#closed = true;
    for (const link of this.#all()) link.destroy(reason);
  }

  #all(): PeerLink[] {
    return [...this.#links.values(), ...this.#draining];
  }
}

/** Why a dial to a peer has failed. The sentences for an agent's server name other options. */
function whyUnreached(error: Error): string {
  if (!(error instanceof DialFault)) return error.message;
  const { by, validFrom, validTo } = error.facts;
  switch (error.fault) {
    case "server_expired":
      return `its certificate, or its CA's, expired on ${minute(validTo)}: renew its --peer-cert, or compare clocks`;
    case "server_not_yet_valid":
      return `its certificate is not valid before ${minute(validFrom)}: compare clocks, or issue its --peer-cert again`;
    case "wrong_usage":
      return "its certificate is not for servers: issue its --peer-cert again, with serverAuth and clientAuth";
    case "unknown_ca":
    case "intercepted":
      return `its certificate is signed by "${by}", which is not in --peer-ca-cert`;
    default:
      return error.message;
  }
}

function minute(ms = 0): string {
  return `${new Date(ms).toISOString().slice(0, 16)}Z`;
}
