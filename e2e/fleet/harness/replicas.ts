import type { Agent } from "../../../agent/agent.ts";
import { Balancer } from "../../harness/balancer.ts";
import { type Connection, connectThrough } from "../../harness/caller.ts";
import { startClusterAgent } from "../../harness/cluster-agents.ts";
import { ClusterFolder } from "../../harness/cluster-files.ts";
import { started } from "../../harness/started.ts";
import { freePort } from "../../harness/targets/absent.ts";
import { waitFor } from "../../harness/wait.ts";
import { ClusterTargets } from "./cluster-target.ts";
import { type BalancerPorts, haproxyConfiguration } from "./haproxy.ts";
import { FINDS_SERVERS_SOON, ServerSlot } from "./server-slot.ts";

const PATIENCE_MS = 60_000;

/** The ways of callers: any server that is ready, or any server at all, as a Service with publishNotReadyAddresses. */
export type Way = "ready" | "published";

/**
 * Servers beside each other that know the same clusters, a balancer before them, and agents that reach each of them.
 */
export class Replicas implements AsyncDisposable {
  readonly servers: ServerSlot[] = [];
  readonly folder: ClusterFolder;
  readonly #targets: ClusterTargets;
  readonly #agents: Agent[] = [];
  readonly #ports: BalancerPorts;
  #balancer: Balancer | undefined;

  private constructor(folder: ClusterFolder, targets: ClusterTargets, ports: BalancerPorts) {
    this.folder = folder;
    this.#targets = targets;
    this.#ports = ports;
  }

  static async start(serverNames: readonly string[], clusterNames: readonly string[]): Promise<Replicas> {
    const folder = await ClusterFolder.create(clusterNames);
    const [ready, published, agents] = await Promise.all([freePort(), freePort(), freePort()]);
    const replicas = new Replicas(folder, await ClusterTargets.start(clusterNames), { ready, published, agents });
    return await started(replicas, () => replicas.#start(serverNames));
  }

  get clusters(): readonly string[] {
    return this.folder.all.map(({ name }) => name);
  }

  async #start(serverNames: readonly string[]): Promise<void> {
    const flags = {
      ...{ serverCount: serverNames.length, readyNeedsAgent: true },
      // The test is about servers that go and come, and not about the speed of a busy machine.
      ...{ connectTimeout: "30s", agentAckTimeout: "20s", agentWait: "20s", drainTimeout: "20s" },
    };
    for (const name of serverNames) this.servers.push(await ServerSlot.reserve(name, this.folder, flags));
    const text = haproxyConfiguration(this.#ports, this.servers);
    this.#balancer = await Balancer.start("haproxy", text, Object.values(this.#ports));
    await Promise.all(this.servers.map((server) => server.start()));
    // Each agent reaches the target of its own cluster and no other.
    const starting = this.folder.all.map((cluster) => {
      const allowTarget = [this.#targets.addressOf(cluster.name)];
      return startClusterAgent(cluster, this.#ports.agents, { ...FINDS_SERVERS_SOON, allowTarget });
    });
    this.#agents.push(...(await Promise.all(starting)));
    for (const server of this.servers) await this.allBackAt(server);
  }

  /** Resolves when every agent takes connections at this server. */
  async allBackAt(server: ServerSlot): Promise<void> {
    const { length } = this.#agents;
    await waitFor(async () => (await server.agents()) === length, {
      deadlineMs: PATIENCE_MS,
      what: `${length} agents at ${server.name}`,
    });
  }

  /**
   * A CONNECT of this cluster's caller to its own target: at a server by its socket, or over TLS through the balancer.
   */
  async connect(at: ServerSlot | Way, cluster: string): Promise<Connection> {
    const listener =
      typeof at === "string"
        ? await this.folder.get(cluster).listener("tls", this.#ports[at])
        : at.documents.socketOf(cluster);
    return connectThrough(listener, this.#targets.addressOf(cluster), { deadlineMs: PATIENCE_MS });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const agent of this.#agents) agent.destroy(new Error("the test is over"));
    await Promise.all(this.servers.map((server) => server[Symbol.asyncDispose]()));
    await this.#balancer?.[Symbol.asyncDispose]();
    await this.#targets[Symbol.asyncDispose]();
    this.folder[Symbol.dispose]();
  }
}
