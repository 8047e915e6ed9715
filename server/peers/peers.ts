import { randomUUID } from "node:crypto";
import type { AddressInfo } from "node:net";
import { formatTarget } from "../../shared/address/target.ts";
import { untilAborted } from "../../shared/basics/promises.ts";
import type { MemoryShare } from "../../shared/limits/memory-pool.ts";
import { CulvertError } from "../../shared/outcomes.ts";
import type { Check } from "../../shared/runtime/check.ts";
import type { Expiring } from "../../shared/tls/expiry.ts";
import type { RevocationList } from "../../shared/tls/revocation-list.ts";
import type { Stream } from "../../shared/yamux/stream.ts";
import type { WaitingConnections } from "../listeners/port-connections.ts";
import type { ServerOptions } from "../options/options.ts";
import type { ClusterTunnels } from "../tunnels/cluster-tunnels.ts";
import type { ServerContext } from "../tunnels/context.ts";
import type { LinkOwners, TakeCarried } from "../tunnels/links.ts";
import type { PeerFinder, ServerHop } from "../tunnels/peer-finder.ts";
import type { FromPeer } from "./accepted-peers.ts";
import { type Directory, type Location, Locations } from "./directory.ts";
import { NatsDirectory } from "./nats-directory.ts";
import type { PeerLink } from "./peer-link.ts";
import { PeerLinks } from "./peer-links.ts";
import { openAtOwner, PeerHop } from "./peer-opening.ts";
import { PeerPort } from "./peer-port.ts";
import { PeerStreams } from "./peer-streams.ts";
import { OwnCertificate } from "./peer-trust.ts";

/** The parts of a server that its peers need beside its context. */
export interface PeersSetup {
  readonly waiting: WaitingConnections;
  /** The CRLs of `--client-crl-file`; another array whenever they change. */
  crls(): readonly RevocationList[];
  readonly takeCarried: TakeCarried;
  /** In place of the directory of `--directory`. */
  readonly openDirectory: ((location: Location) => Directory) | undefined;
}

/** The name of the account of links between servers. No cluster has it. */
const MEMORY_OF_PEERS = "(peers)";

/**
 * The other servers of the fleet: the port for them, the links to them, and the directory that says which of them has
 * agents of a cluster (docs/fleet.md).
 */
export class Peers implements PeerFinder {
  /** Of the port; set, as the directory is, when the port is open. */
  address!: AddressInfo;
  #directory!: Directory;
  #locations!: Locations;
  readonly #context: ServerContext;
  readonly #own: OwnCertificate;
  readonly #memory: MemoryShare;
  readonly #links: PeerLinks;
  readonly #streams: PeerStreams;
  readonly #port: PeerPort;

  private constructor({ waiting, crls, takeCarried }: PeersSetup, context: ServerContext) {
    this.#context = context;
    this.#memory = context.pool.share(MEMORY_OF_PEERS);
    this.#own = new OwnCertificate(context, crls, () => {
      this.#links.renew();
      this.#port.verifyAgain();
    });
    const own = { trust: this.#own.trust, instance: randomUUID(), memory: this.#memory };
    this.#links = new PeerLinks(own, context);
    this.#streams = new PeerStreams(takeCarried, context);
    const around = {
      ...own,
      waiting,
      material: () => this.#own.material,
      onStream: (stream: Stream, from: FromPeer) => this.#streams.serve(stream, from),
    };
    // New links are taken while links of agents are open: other servers may carry their next connections here.
    const draining = () => context.draining() && context.links.size === 0;
    this.#port = new PeerPort(around, { ...context, draining });
  }

  /** Opens the port for peers and the directory. Rejects with a `ConfigError`. */
  static async start(setup: PeersSetup, context: ServerContext): Promise<Peers> {
    const peers = new Peers(setup, context);
    try {
      await peers.#open(setup);
      return peers;
    } catch (error) {
      peers.#own.close();
      peers.#port.destroy(error as Error);
      throw error;
    }
  }

  async #open({ openDirectory }: PeersSetup): Promise<void> {
    const { options, metrics, tunnels } = this.#context;
    const { serverId } = options;
    this.address = await this.#port.open();
    const location = { serverId, address: addressOf(options, this.address) };
    const directory = openDirectory?.(location) ?? new NatsDirectory(location, this.#context);
    this.#directory = directory;
    this.#locations = new Locations({ directory, metrics: metrics.hops, serverId });
    metrics.hops.watchDirectory(() => this.canAsk);
    tunnels.watch((name, cluster) => this.#onTunnels(name, cluster));
  }

  get isUp(): boolean {
    return this.#port.isUp;
  }

  // ── CONNECTs ───────────────────────────────────────────────────────────────────────────────────────────────────

  async find(cluster: string, except: readonly ServerHop[] = []): Promise<ServerHop | undefined> {
    const others = except.flatMap((hop) => (hop instanceof PeerHop ? hop.location : []));
    const location = await this.#locations.ofCluster(cluster, others);
    if (location === undefined) return undefined;
    return new PeerHop(cluster, location, this.#links, this.#locations, this.#context.metrics.hops);
  }

  trouble(cluster: string): string | undefined {
    return this.#directory.state.trouble ?? this.#locations.trouble(cluster);
  }

  /** CONNECTs without an agent here can go to other servers. */
  get canAsk(): boolean {
    return this.#directory.state.canAsk;
  }

  #onTunnels(name: string, cluster: ClusterTunnels | undefined): void {
    const takesStreams = () => !this.#context.draining() && cluster?.pick() !== undefined;
    if (takesStreams()) this.#directory.join(name, takesStreams);
    else this.#directory.leave(name);
  }

  // ── streams of other kinds ─────────────────────────────────────────────────────────────────────────────────────

  /** The way to the servers that have issued the links of other servers. */
  readonly owners: LinkOwners = {
    open: async (serverId, facts, signal, memory) => {
      const link = await untilAborted(this.#linkTo(serverId), signal);
      return await openAtOwner(link, facts, signal, { ackTimeoutMs: this.#context.options.agentAckTimeoutMs, memory });
    },
  };

  /** The link to the server with this id, on which streams of any kind can be opened. Rejects with a `CulvertError`. */
  async #linkTo(serverId: string): Promise<PeerLink> {
    const open = this.#links.openTo(serverId);
    if (open !== undefined) return open;
    const location = await this.#locations.ofServer(serverId);
    if (location === undefined) throw new CulvertError("peer_lost", `the directory has no server "${serverId}"`);
    return await this.#links.get(location);
  }

  // ── for operators ──────────────────────────────────────────────────────────────────────────────────────────────

  checks(): Check[] {
    return [this.#directoryCheck(), this.#own.check()];
  }

  /** Certificate and CA for peers, as they expire. */
  expiring(): Iterable<Expiring> {
    return this.#own.expiring();
  }

  #directoryCheck(): Check {
    const { canAsk, detail, faults } = this.#directory.state;
    const links = `${this.#links.size} links to peers, ${this.#port.size} from peers`;
    const warnings = faults.map((fault) => `warning: ${fault}`);
    const hasFaults = faults.length > 0 || !canAsk;
    return { name: "directory", ok: true, hasFaults, detail: [...warnings, detail, links].join("; ") };
  }

  /** The CRLs of `--client-crl-file` have changed. */
  onCrlChanged(): void {
    this.#own.checkCrls();
    this.#links.endRevoked();
    this.#port.endRevoked();
  }

  /** Whether a CA of `--peer-ca-cert` has issued this CRL. */
  knowsCrl(list: RevocationList): boolean {
    return this.#own.trust.knows(list);
  }

  // ── end ────────────────────────────────────────────────────────────────────────────────────────────────────────

  /**
   * Is not found for CONNECTs any more, and refuses those that come. Its id is still known: peers carry resumes here
   * until the last link of this server has ended.
   */
  drain(): void {
    for (const cluster of this.#context.tunnels.clusters.values()) this.#directory.leave(cluster.name);
  }

  /** Resolves when no CONNECT of a peer is open here any more, or after `deadlineMs`. */
  emptied(deadlineMs: number): Promise<void> {
    return this.#streams.emptied(deadlineMs);
  }

  /** Takes and opens nothing more, and ends every link; what is open has `deadlineMs` to end. */
  async close(deadlineMs: number): Promise<void> {
    await Promise.all([this.#port.close(deadlineMs), this.#links.close(deadlineMs)]);
  }

  /** Ends everything now. */
  async destroy(reason: Error): Promise<void> {
    this.#own.close();
    this.#links.destroy(reason);
    this.#port.destroy(reason);
    this.#memory.close();
    await this.#directory.close();
  }
}

function addressOf({ peerAddress }: ServerOptions, { port }: AddressInfo): string {
  const hasPort = /^(?:\[[^\]]*\]|[^:]*):\d+$/.test(peerAddress);
  return hasPort ? peerAddress : formatTarget({ host: peerAddress.replace(/^\[|\]$/g, ""), port });
}
