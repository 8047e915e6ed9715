import { writeFile } from "node:fs/promises";
import { stringify } from "yaml";
import { type Agent, startAgent } from "../../agent/agent.ts";
import { type AgentOptions, agentOptions } from "../../agent/context/options.ts";
import type { ServerOptions } from "../../server/options/options.ts";
import { defaultsOf } from "../../shared/config/options.ts";
import type { CertificateAndKey } from "../../shared/pki/certificates.ts";
import { createLogger } from "../../shared/runtime/logger.ts";
import { connectThrough } from "../harness/caller.ts";
import { type ClusterFiles, ClusterFolder } from "../harness/cluster-files.ts";
import { type ClusterServer, startClusterServer } from "../harness/cluster-server.ts";
import { type FaultRelay, startRelay } from "../harness/faults.ts";
import { freePort } from "../harness/targets/absent.ts";
import { within } from "../harness/wait.ts";

const log = createLogger({ level: "silent", format: "json", name: "page" });

/** A server of a cluster `blue` with an agent behind a relay, and of many clusters that have none. */
export class PageWorld implements AsyncDisposable {
  readonly #folder: ClusterFolder;
  #server: ClusterServer;
  readonly #adminPort: number;
  readonly #agents: Agent[] = [];
  relay: FaultRelay;

  private constructor(folder: ClusterFolder, server: ClusterServer, adminPort: number, relay: FaultRelay) {
    this.#folder = folder;
    this.#server = server;
    this.#adminPort = adminPort;
    this.relay = relay;
  }

  /** `others`: the names of clusters that have no agent; `more`: of those that may have agents, beside blue. */
  static async start(
    others: readonly string[],
    more: readonly string[] = [],
    options: Partial<ServerOptions> = {},
  ): Promise<PageWorld> {
    const folder = await ClusterFolder.create(["blue", ...more]);
    for (const each of folder.all) await each.write({ deny: ["169.254.0.0/16"], callers: { uds: undefined } });
    if (others.length > 0) await writeFile(folder.dir.file("others.yaml"), others.map(documentOf).join("---\n"));
    const adminPort = await freePort();
    const server = await startClusterServer(folder, { adminPort, serverId: "srv-1", ...options });
    const relay = await startRelay({ host: "127.0.0.1", port: server.agentPort });
    return new PageWorld(folder, server, adminPort, relay);
  }

  get blue(): ClusterFiles {
    return this.#folder.get("blue");
  }

  get folder(): string {
    return this.#folder.path;
  }

  async stop(): Promise<void> {
    await this.#server.server.close();
  }

  /** A server with the same admin port. */
  async restart(): Promise<void> {
    this.#server = await startClusterServer(this.#folder, { adminPort: this.#adminPort, serverId: "srv-1" });
  }

  tunnels() {
    return this.#server.server.tunnels.tunnels();
  }

  get url(): string {
    return `http://127.0.0.1:${this.#adminPort}/ui/`;
  }

  /** `of`: the cluster; absent: blue. */
  async startAgent(agentId: string, more: Partial<AgentOptions> = {}, of = "blue"): Promise<Agent> {
    const where = await this.#folder.get(of).agentOptions(this.relay.port);
    const ports = { healthServerPort: 0, adminServerPort: 0 };
    const agent = await startAgent({ ...defaultsOf(agentOptions), ...where, ...ports, agentId, ...more }, { log });
    this.#agents.push(agent);
    await within(agent.whenConnected(), 30_000, "the agent's tunnel");
    return agent;
  }

  cluster(name: string): ClusterFiles {
    return this.#folder.get(name);
  }

  /** One CONNECT of a caller of this cluster; `by`: with another certificate than its own. */
  async connect(target: string, of = "blue", by?: CertificateAndKey) {
    const { authority, sni: servername, callerPair } = this.cluster(of);
    const tls = { ca: authority.cert, servername, ...(by ?? (await callerPair)) };
    return await connectThrough({ host: "127.0.0.1", port: this.#server.callerPort, tls }, target);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const agent of this.#agents) agent.destroy(new Error("the test is over"));
    this.#server[Symbol.dispose]();
    await this.relay[Symbol.asyncDispose]();
    this.#folder[Symbol.dispose]();
  }
}

/** Under the CA of blue, for identities of its own. */
function documentOf(name: string): string {
  const files = { cert: "blue.pem", key: "blue.pem", ca: "blue.ca" };
  const side = (role: string) => ({ sni: [`${name}.example`], ...files, identities: [`O=${role}:${name}`] });
  return stringify({ name, agents: side("agents"), callers: side("callers") });
}
