import { fleetConfiguration } from "../../fleet/harness/haproxy.ts";
import { ServerSlot } from "../../fleet/harness/server-slot.ts";
import { Balancer } from "../../harness/balancer.ts";
import { ClusterFolder, numbered } from "../../harness/cluster-files.ts";
import { runConcurrently } from "../../harness/concurrently.ts";
import { NatsServers } from "../../harness/nats-servers.ts";
import { PeerFiles } from "../../harness/peer-files.ts";
import { freePort } from "../../harness/targets/absent.ts";
import { BenchChild } from "../child.ts";
import type { ClusterOfCrowd, FleetCrowdMethods } from "./crowd.ts";
import { DirectoryWatch } from "./directory-watch.ts";

/** Servers with a directory, a balancer in front of them for agents, and a crowd of light agents. */
export class ServerFleet implements AsyncDisposable {
  readonly folder: ClusterFolder;
  readonly nats: NatsServers;
  readonly servers: readonly ServerSlot[];
  readonly watch: DirectoryWatch;
  readonly crowd = new BenchChild<FleetCrowdMethods>("fleet/crowd.ts");
  readonly #agentsPort: number;
  #balancer: Balancer | undefined;

  private constructor(parts: Pick<ServerFleet, "folder" | "nats" | "servers" | "watch">, agentsPort: number) {
    this.folder = parts.folder;
    this.nats = parts.nats;
    this.servers = parts.servers;
    this.watch = parts.watch;
    this.#agentsPort = agentsPort;
  }

  /** With places for this number of servers, none of which runs yet. */
  static async prepare(serverNames: readonly string[], clusters: number): Promise<ServerFleet> {
    const folder = await ClusterFolder.create(numbered("blue", clusters));
    // A socket for each cluster and server would count, too, and nobody calls.
    for (const cluster of folder.all) await cluster.write({ callers: { uds: undefined } });
    const nats = await NatsServers.start({ dir: folder.path });
    const peers = await PeerFiles.create(folder.dir);
    const servers: ServerSlot[] = [];
    for (const name of serverNames) {
      const flags = await peers.flagsOf(name, { peerPort: await freePort() }, nats.urls());
      servers.push(await ServerSlot.reserve(name, folder, { ...flags, logLevel: "warn" }));
    }
    const watch = await DirectoryWatch.connect(nats.urls());
    const fleet = new ServerFleet({ folder, nats, servers, watch }, await freePort());
    const ports = { agents: fleet.#agentsPort, callers: await freePort() };
    fleet.#balancer = await Balancer.start("haproxy", fleetConfiguration(ports, servers), [ports.agents]);
    return fleet;
  }

  /** Connects this number of agents of each cluster. */
  async gather(each: number): Promise<void> {
    const clusters: ClusterOfCrowd[] = [];
    await runConcurrently(this.folder.all.length, 8, async (index) => {
      const cluster = this.folder.all[index];
      if (cluster) clusters[index] = { servername: cluster.sni, ca: cluster.ca, ...(await cluster.agentPair) };
    });
    await this.crowd.call("gather", { port: this.#agentsPort, clusters, each });
  }

  get running(): readonly ServerSlot[] {
    return this.servers.filter(({ running }) => running);
  }

  /** How many clusters the directory leads to a server that runs. */
  heldClusters(): Promise<number> {
    const names = this.folder.all.map(({ name }) => name);
    return this.watch.held(names, new Set(this.running.map(({ name }) => name)));
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.crowd[Symbol.asyncDispose]();
    await this.watch[Symbol.asyncDispose]();
    await Promise.all(this.servers.map((server) => server[Symbol.asyncDispose]()));
    await this.#balancer?.[Symbol.asyncDispose]();
    await this.nats[Symbol.asyncDispose]();
    this.folder[Symbol.dispose]();
  }
}
