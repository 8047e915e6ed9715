import assert from "node:assert/strict";
import type { Agent } from "../../../agent/agent.ts";
import { Balancer } from "../../harness/balancer.ts";
import { type Connection, connectThrough } from "../../harness/caller.ts";
import { startClusterAgent } from "../../harness/cluster-agents.ts";
import { ClusterFolder } from "../../harness/cluster-files.ts";
import { runConcurrently } from "../../harness/concurrently.ts";
import type { FaultRelay } from "../../harness/faults.ts";
import { NatsServers } from "../../harness/nats-servers.ts";
import { PeerFiles } from "../../harness/peer-files.ts";
import type { Flags } from "../../harness/pki-files.ts";
import { started } from "../../harness/started.ts";
import { freePort } from "../../harness/targets/absent.ts";
import { waitFor } from "../../harness/wait.ts";
import { ClusterTargets } from "./cluster-target.ts";
import { fleetConfiguration } from "./haproxy.ts";
import { PathBetween } from "./path-between.ts";
import { FINDS_SERVERS_SOON, ServerSlot } from "./server-slot.ts";

const PATIENCE_MS = 60_000;
const AT_ONCE = 16;

/** How a fleet is made. */
export interface DirectoryFleetOptions {
  readonly serverNames: readonly string[];
  readonly clusterNames: readonly string[];
  readonly natsServers: number;
}

/**
 * Servers behind one address that find each other by NATS. The agent of each cluster reaches one of them, whichever the
 * balancer chooses; callers may come to any.
 */
export class DirectoryFleet implements AsyncDisposable {
  readonly servers: ServerSlot[] = [];
  readonly nats: NatsServers;
  readonly folder: ClusterFolder;
  /** The path between the first two servers. */
  readonly between: PathBetween;
  readonly #agents = new Map<string, Agent>();
  readonly #ports: { readonly agents: number; readonly callers: number };
  readonly #targets: ClusterTargets;
  #balancer: Balancer | undefined;

  private constructor(
    parts: Pick<DirectoryFleet, "nats" | "folder" | "between">,
    targets: ClusterTargets,
    ports: { readonly agents: number; readonly callers: number },
  ) {
    this.nats = parts.nats;
    this.folder = parts.folder;
    this.between = parts.between;
    this.#targets = targets;
    this.#ports = ports;
  }

  static async start({ serverNames, clusterNames, natsServers }: DirectoryFleetOptions): Promise<DirectoryFleet> {
    const [agents, callers, ...peerPorts] = await Promise.all([freePort(), freePort(), freePort(), freePort()]);
    const folder = await ClusterFolder.create(clusterNames);
    const parts = {
      folder,
      nats: await NatsServers.start({ dir: folder.path, count: natsServers }),
      between: await PathBetween.start(peerPorts),
    };
    const fleet = new DirectoryFleet(parts, await ClusterTargets.start(clusterNames), { agents, callers });
    return await started(fleet, async () => {
      await fleet.#startServers(serverNames, peerPorts);
      await runConcurrently(clusterNames.length, AT_ONCE, (index) => fleet.startAgent(clusterNames[index] ?? ""));
    });
  }

  async #startServers(names: readonly string[], peerPorts: readonly [number, number]): Promise<void> {
    const peers = await PeerFiles.create(this.folder.dir);
    for (const [index, name] of names.entries()) {
      const front = this.between.fronts[index];
      const place = {
        peerPort: peerPorts[index] ?? (await freePort()),
        ...(front !== undefined && { reachedAt: front.port }),
      };
      const flags: Flags = {
        // The test is about servers that go and come, and not about the speed of a busy machine.
        ...{ connectTimeout: "30s", agentAckTimeout: "5s", agentWait: "5s", drainTimeout: "20s" },
        ...(await peers.flagsOf(name, place, this.nats.urls())),
      };
      this.servers.push(await ServerSlot.reserve(name, this.folder, flags));
    }
    const [first, second] = this.servers;
    if (first !== undefined && second !== undefined) this.between.join(first, second);
    const text = fleetConfiguration(this.#ports, this.servers);
    this.#balancer = await Balancer.start("haproxy", text, Object.values(this.#ports));
    await Promise.all(this.servers.map((server) => server.start()));
    await Promise.all(this.servers.map((server) => server.whenReady()));
  }

  /** The way of all peers to the first server. */
  get relay(): FaultRelay {
    return this.between.fronts[0];
  }

  /** An agent of a cluster, in place of the one of that id: behind the balancer, or at a server. */
  async startAgent(cluster: string, at?: ServerSlot, id = "first"): Promise<void> {
    this.stopAgent(cluster, id);
    const port = at === undefined ? this.#ports.agents : at.agentPort;
    const allowTarget = [this.#targets.addressOf(cluster)];
    const options = { ...FINDS_SERVERS_SOON, agentId: id, uplinks: "1", allowTarget };
    this.#agents.set(`${cluster} ${id}`, await startClusterAgent(this.folder.get(cluster), port, options));
  }

  stopAgent(cluster: string, id: string): void {
    this.#agents.get(`${cluster} ${id}`)?.destroy(new Error("the test has ended this agent"));
    this.#agents.delete(`${cluster} ${id}`);
  }

  /** Resolves when every agent has a server again. */
  async whenAgentsAreBack(): Promise<void> {
    const lost = () => [...this.#agents].filter(([, agent]) => !agent.connected).map(([name]) => name);
    await waitFor(() => lost().length === 0, { deadlineMs: PATIENCE_MS, what: "agents to be back" });
  }

  get running(): readonly ServerSlot[] {
    return this.servers.filter(({ running }) => running);
  }

  server(name: string): ServerSlot {
    return this.servers.find((server) => server.name === name) ?? assert.fail(name);
  }

  /** A CONNECT of this cluster's caller to its target: at this server, or over TLS at the balancer. */
  async connect(at: ServerSlot | "balancer", cluster: string): Promise<Connection> {
    const listener =
      at === "balancer"
        ? await this.folder.get(cluster).listener("tls", this.#ports.callers)
        : at.documents.socketOf(cluster);
    return await connectThrough(listener, this.#targets.addressOf(cluster), { deadlineMs: PATIENCE_MS });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const agent of this.#agents.values()) agent.destroy(new Error("the test is over"));
    await Promise.all(this.servers.map((server) => server[Symbol.asyncDispose]()));
    await this.#balancer?.[Symbol.asyncDispose]();
    await this.between[Symbol.asyncDispose]();
    await this.nats[Symbol.asyncDispose]();
    await this.#targets[Symbol.asyncDispose]();
    this.folder[Symbol.dispose]();
  }
}
