import assert from "node:assert/strict";
import { type Agent, startAgent } from "../../../agent/agent.ts";
import { agentOptions } from "../../../agent/options.ts";
import { defaultsOf } from "../../../shared/config/options.ts";
import { createLogger } from "../../../shared/runtime/logger.ts";
import { Balancer } from "../../harness/balancer.ts";
import { type Connection, connectThrough } from "../../harness/caller.ts";
import { ClusterFolder } from "../../harness/cluster-files.ts";
import { freePort } from "../../harness/targets/absent.ts";
import type { TcpTarget } from "../../harness/targets/tcp.ts";
import { waitFor, within } from "../../harness/wait.ts";
import { clusterTarget } from "./cluster-target.ts";
import { type BalancerPorts, haproxyConfiguration } from "./haproxy.ts";
import { ServerSlot } from "./server-slot.ts";

const { CULVERT_E2E_LOG: level = "silent" } = process.env;
const log = createLogger({ level, format: "auto", name: "agent" });
const PATIENCE_MS = 60_000;

/** The ways of callers: any server that is ready, or any server at all, as a Service with publishNotReadyAddresses. */
export type Way = "ready" | "published";

/** Servers beside each other that know the same clusters, a balancer before them, and agents that reach each of them. */
export class Replicas implements AsyncDisposable {
  readonly servers: ServerSlot[] = [];
  readonly folder: ClusterFolder;
  readonly #targets = new Map<string, TcpTarget>();
  readonly #agents: Agent[] = [];
  readonly #ports: BalancerPorts;
  #balancer: Balancer | undefined;

  private constructor(folder: ClusterFolder, ports: BalancerPorts) {
    this.folder = folder;
    this.#ports = ports;
  }

  static async start(serverNames: readonly string[], clusterNames: readonly string[]): Promise<Replicas> {
    const folder = await ClusterFolder.create(clusterNames);
    const [ready, published, agents] = await Promise.all([freePort(), freePort(), freePort()]);
    const replicas = new Replicas(folder, { ready, published, agents });
    try {
      // A unix socket belongs to one process.
      for (const cluster of folder.all) await cluster.write({ callers: { uds: undefined } });
      await replicas.#start(serverNames);
      return replicas;
    } catch (error) {
      await replicas[Symbol.asyncDispose]();
      throw error;
    }
  }

  get clusters(): readonly string[] {
    return [...this.#targets.keys()];
  }

  async #start(serverNames: readonly string[]): Promise<void> {
    const flags = {
      ...{ clusters: this.folder.path, serverCount: serverNames.length, readyNeedsAgent: true },
      // What is tested are servers that go and come, and not how long a busy machine takes for it.
      ...{ connectTimeout: "30s", agentAckTimeout: "20s", agentWait: "20s", drainTimeout: "20s" },
    };
    for (const name of serverNames) this.servers.push(await ServerSlot.reserve(name, flags));
    const text = haproxyConfiguration(this.#ports, this.servers);
    this.#balancer = await Balancer.start("haproxy", text, Object.values(this.#ports));
    await Promise.all(this.servers.map((server) => server.start()));
    for (const { name } of this.folder.all) this.#targets.set(name, await clusterTarget(name));
    await Promise.all(this.folder.all.map(({ name }) => this.#startAgent(name)));
    for (const server of this.servers) await this.allBackAt(server);
  }

  /** An agent that reaches the target of its own cluster and no other. */
  async #startAgent(name: string): Promise<void> {
    const cluster = this.folder.get(name);
    const options = {
      ...defaultsOf(agentOptions),
      ...(await cluster.agentOptions(this.#ports.agents)),
      ...{ agentId: `agent-of-${name}`, healthServerPort: 0, adminServerPort: 0 },
      syncIntervalCapMs: 2_000, // a server that is back is found within it
      allowTarget: [this.#target(name).address],
    };
    const agent = await startAgent(options, { log: log.child({ cluster: name }) });
    this.#agents.push(agent);
    await within(agent.whenConnected(), PATIENCE_MS, `the agent of ${name} to be connected`);
  }

  /** Resolves when every agent takes connections at this server. */
  async allBackAt(server: ServerSlot): Promise<void> {
    const { length } = this.#agents;
    await waitFor(async () => (await server.agents()) === length, {
      deadlineMs: PATIENCE_MS,
      what: `${length} agents at ${server.name}`,
    });
  }

  /** A CONNECT of this cluster's caller to its own target, at a server or through the balancer. */
  async connect(at: ServerSlot | Way, cluster: string): Promise<Connection> {
    const port = typeof at === "string" ? this.#ports[at] : at.callerPort;
    const listener = await this.folder.get(cluster).listener("tls", port);
    return connectThrough(listener, this.#target(cluster).address, { deadlineMs: PATIENCE_MS });
  }

  #target(cluster: string): TcpTarget {
    return this.#targets.get(cluster) ?? assert.fail(`there is no cluster ${cluster}`);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const agent of this.#agents) agent.destroy(new Error("the test is over"));
    await Promise.all(this.servers.map((server) => server[Symbol.asyncDispose]()));
    await this.#balancer?.[Symbol.asyncDispose]();
    for (const target of this.#targets.values()) await target[Symbol.asyncDispose]();
    this.folder[Symbol.dispose]();
  }
}
