import { agentFiles, flags, serverFiles } from "../../harness/pki-files.ts";
import { MAIN, RUNTIME } from "../../harness/processes.ts";
import type { Program } from "../../harness/program.ts";
import { Scrape } from "../../harness/scrape.ts";
import { CONTROL_PLANE, PORTS } from "./addresses.ts";
import type { AgentKind } from "./lanes.ts";
import type { Namespace } from "./namespace.ts";
import type { Network } from "./network.ts";

const READY_MS = 15_000;
/** kube-apiserver keeps connections for the next request, and a drain waits for them. */
const DRAIN = "1s";

export const AGENT_IDS: Readonly<Record<AgentKind, string>> = { culvert: "node", konnectivity: "stock" };

type Options = Readonly<Record<string, string | number>>;

/** Where things are that are started here. */
interface Files {
  /** The folder of culvert's certificates. */
  readonly pki: string;
  /** Konnectivity's agent. */
  readonly stockAgent: string;
}

/** The server in the control plane's namespace and the agents in the node's, as processes that come and go. */
export class Culvert implements AsyncDisposable {
  readonly #network: Network;
  readonly #files: Files;
  readonly udsName: string;
  /** Kinds of the lane's agents. */
  #kinds: readonly AgentKind[] = ["culvert"];
  #server: Program | undefined;
  /** The newest of each kind. */
  readonly #agents = new Map<AgentKind, Program>();
  #started = 0;

  constructor(network: Network, files: Files, udsName: string) {
    this.#network = network;
    this.#files = files;
    this.udsName = udsName;
  }

  /** Sets the kinds of agents that `startAgent` starts from now on. */
  useAgents(kinds: readonly AgentKind[]): void {
    this.#kinds = kinds;
    this.#agents.clear();
  }

  get server(): Program {
    if (!this.#server) throw new Error("no culvert server has been started");
    return this.#server;
  }

  /** The lane's only agent, or its first. */
  get agent(): Program {
    return this.agentOf(this.#kinds[0]);
  }

  agentOf(kind: AgentKind | undefined): Program {
    const agent = kind && this.#agents.get(kind);
    if (!agent) throw new Error(`no agent of ${kind} has been started`);
    return agent;
  }

  get serverRuns(): boolean {
    return this.#server?.running ?? false;
  }

  get programs(): Program[] {
    return [...(this.#server ? [this.#server] : []), ...this.#agents.values()];
  }

  /** Both listeners for callers at once; resolves when they are open. `more` are options of this one start. */
  async startServer(more: Options = {}): Promise<void> {
    this.#server = this.#start(this.#network.controlPlane, "server", {
      udsName: this.udsName,
      serverPort: PORTS.callers,
      serverBindAddress: "127.0.0.1",
      agentPort: PORTS.agents,
      healthPort: PORTS.serverHealth,
      healthShowsClusters: "true",
      drainTimeout: DRAIN,
      allowedDestination: `127.0.0.1:${PORTS.kubeApiserver}`,
      ...serverFiles(this.#files.pki),
      ...more,
    });
    const ready = () => answers(this.#network.controlPlane, PORTS.serverHealth);
    await this.#server.waitUntil(ready, READY_MS, "a server that is ready");
  }

  /**
   * One of each kind of the lane, with these options beside its own. Does not wait; an agent that is there already is
   * left alone.
   */
  startAgent(more: Options = {}): void {
    this.#started++;
    for (const kind of this.#kinds) {
      this.#agents.set(kind, this.startAgentOf(kind, AGENT_IDS[kind], this.#ports[kind], more));
    }
  }

  /** Another agent, which its caller ends. It takes `port`, and one of Konnectivity the next one as well. */
  startAgentOf(kind: AgentKind, agentId: string, port: number, more: Options = {}): Program {
    const options = {
      proxyServerHost: CONTROL_PLANE.ipv4,
      proxyServerPort: PORTS.agents,
      agentId,
      healthServerHost: "127.0.0.1",
      healthServerPort: port,
      ...agentFiles(this.#files.pki),
      ...more,
    };
    const { node } = this.#network;
    if (kind === "culvert") return this.#start(node, "agent", { ...options, adminServerPort: 0, drainTimeout: DRAIN });
    // By default it writes a line for each packet.
    const stock = { ...options, adminServerPort: port + 1, v: 2 };
    return node.start("konnectivity-agent", [this.#files.stockAgent, ...flags(stock)]);
  }

  scrapeServer(): Promise<Scrape> {
    return scrape(this.#network.controlPlane, PORTS.serverHealth);
  }

  /** Dials and streams that an agent of the lane has. A stock agent does not tell of its dials. */
  async loadOf(kind: AgentKind): Promise<{ readonly dials: number; readonly streams: number }> {
    const figures = await scrape(this.#network.node, this.#ports[kind]);
    if (kind === "konnectivity") {
      return { dials: 0, streams: figures.sum("konnectivity_network_proxy_agent_open_endpoint_connections", {}) };
    }
    return { dials: figures.value("culvert_agent_pending_dials"), streams: figures.value("culvert_agent_streams") };
  }

  /** The same, of all together. */
  async agentLoad(): Promise<{ readonly dials: number; readonly streams: number }> {
    const loads = await Promise.all(this.#kinds.map((kind) => this.loadOf(kind)));
    const sum = (figure: "dials" | "streams") => loads.reduce((all, load) => all + load[figure], 0);
    return { dials: sum("dials"), streams: sum("streams") };
  }

  /**
   * The agent's links that have lost their connection now. /metrics would say how many there were up to a second ago.
   */
  async resuming(): Promise<number> {
    const { stdout } = await this.#network.node.must([
      ...["curl", "-sS", "-m", "5"],
      `http://127.0.0.1:${this.#ports.culvert}/readyz?verbose`,
    ]);
    return Number(/, resuming (\d+)/.exec(stdout)?.[1] ?? 0);
  }

  async stop(): Promise<void> {
    // A stock agent ends by its second SIGTERM.
    this.#agents.get("konnectivity")?.signal("SIGTERM");
    await Promise.all(this.programs.map((program) => program.stop()));
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.stop();
  }

  /** Two agents that replace each other share the node's ports, as pods do not. */
  get #ports(): Readonly<Record<AgentKind, number>> {
    const culvert = PORTS.agentHealth + 10 * (this.#started % 2);
    return { culvert, konnectivity: culvert + 1 };
  }

  #start(where: Namespace, command: "server" | "agent", options: Options): Program {
    return where.start(`culvert ${command}`, [RUNTIME, MAIN, command, ...flags(options)]);
  }
}

async function answers(where: Namespace, port: number): Promise<boolean> {
  return (await where.run(["curl", "-sf", "-m", "2", `http://127.0.0.1:${port}/readyz`])).code === 0;
}

async function scrape(where: Namespace, port: number): Promise<Scrape> {
  return new Scrape((await where.must(["curl", "-sS", "-m", "5", `http://127.0.0.1:${port}/metrics`])).stdout);
}
