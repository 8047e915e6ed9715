import { createPki, type Pki } from "../../../cli/pki/pki.ts";
import { flags } from "../../harness/pki-files.ts";
import { MAIN, RUNTIME, requireBuilt } from "../../harness/processes.ts";
import type { Program } from "../../harness/program.ts";
import { started } from "../../harness/started.ts";
import { TempDir } from "../../harness/temp.ts";
import { INSECURE_PORT, NAMES, SERVER } from "./addresses.ts";
import { type Identities, writeCluster } from "./cluster.ts";
import { CorporateNetwork } from "./network.ts";
import { Traffic } from "./traffic.ts";

export interface AgentOptions {
  /** By default a certificate. */
  readonly identity?: keyof Identities;
  /** The server's name for the agent. By default it is one that only a proxy can resolve. */
  readonly server?: string;
  readonly env?: Readonly<Record<string, string>>;
}

interface Parts {
  readonly network: CorporateNetwork;
  readonly dir: TempDir;
  readonly pki: Pki;
  readonly identities: Identities;
  readonly server: Program;
  readonly traffic: Traffic;
}

const READY_MS = 15_000;
const CONNECTED_MS = 15_000;

/** A workload cluster in a company's network, and a server that it reaches through the company's proxy only. */
export class Company implements AsyncDisposable {
  readonly network: CorporateNetwork;
  readonly dir: TempDir;
  readonly pki: Pki;
  readonly server: Program;
  readonly traffic: Traffic;
  readonly #identities: Identities;

  private constructor({ network, dir, pki, identities, server, traffic }: Parts) {
    this.network = network;
    this.dir = dir;
    this.pki = pki;
    this.server = server;
    this.traffic = traffic;
    this.#identities = identities;
  }

  /** `change` sets options of the server. */
  static async create(change: Readonly<Record<string, number | string>> = {}): Promise<Company> {
    requireBuilt();
    const network = await CorporateNetwork.create();
    const dir = new TempDir();
    try {
      const pki = await createPki({ dir: dir.path, clusterNames: [NAMES.server, NAMES.serverKnownInside] });
      const [clusters, uds] = [dir.file("clusters"), dir.file("s")];
      const identities = await writeCluster(dir.path, clusters, uds);
      const options = {
        clusters,
        agentBindAddress: SERVER,
        agentPort: 443,
        agentInsecurePort: INSECURE_PORT,
        healthPort: 0,
        adminPort: 0,
        innerTls: "auto",
        ...change,
      };
      const argv = [RUNTIME, MAIN, "server", ...flags(options)];
      const server = network.outside.start("culvert server", argv);
      await server.waitForLog(/"server started"/, READY_MS);
      const traffic = await Traffic.open(network.inside, uds);
      return new Company({ network, dir, pki, identities, server, traffic });
    } catch (error) {
      // This ends all processes in it.
      await network[Symbol.asyncDispose]();
      dir[Symbol.dispose]();
      throw error;
    }
  }

  /** Starts an agent without waiting for it. */
  startAgent(options: readonly string[], more: AgentOptions = {}): Program {
    const { identity = "certificate", server = NAMES.server, env = {} } = more;
    const own = flags({
      ...{ server: `wss://${server}`, caCert: this.pki.files["cluster-ca.crt"] },
      ...{ healthServerPort: 0, adminServerPort: 0, allowLoopback: true, syncInterval: "50ms" },
    });
    const argv = [RUNTIME, MAIN, "agent", ...own, ...this.#identities[identity], ...options];
    return this.network.inside.start("culvert agent", argv, env);
  }

  /** Starts an agent and waits for its tunnel. */
  async connectAgent(options: readonly string[], more?: AgentOptions): Promise<Program> {
    return await started(this.startAgent(options, more), (agent) =>
      agent.waitForLog(/"uplink connected"/, CONNECTED_MS),
    );
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await Promise.allSettled([this.server.stop(), this.traffic[Symbol.asyncDispose]()]);
    await this.network[Symbol.asyncDispose]();
    this.dir[Symbol.dispose]();
  }
}
