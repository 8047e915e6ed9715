import { agentFiles, flags, serverFiles } from "../../harness/pki-files.ts";
import { MAIN } from "../../harness/processes.ts";
import type { Program } from "../../harness/program.ts";
import { Scrape } from "../../harness/scrape.ts";
import { CONTROL_PLANE, PORTS } from "./addresses.ts";
import type { Namespace } from "./namespace.ts";
import type { Network } from "./network.ts";

const READY_MS = 15_000;
/** kube-apiserver keeps connections for the next request, and a drain waits for them. */
const DRAIN = "1s";

type Options = Readonly<Record<string, string | number>>;

/** The server in the control plane's namespace and the agent in the node's, as processes that come and go. */
export class Culvert implements AsyncDisposable {
  readonly #network: Network;
  readonly #pki: string;
  readonly udsName: string;
  #server: Program | undefined;
  #agent: Program | undefined;
  #agents = 0;

  constructor(network: Network, pki: string, udsName: string) {
    this.#network = network;
    this.#pki = pki;
    this.udsName = udsName;
  }

  get server(): Program {
    if (!this.#server) throw new Error("no culvert server has been started");
    return this.#server;
  }

  get agent(): Program {
    if (!this.#agent) throw new Error("no culvert agent has been started");
    return this.#agent;
  }

  get serverRuns(): boolean {
    return this.#server?.running ?? false;
  }

  get programs(): Program[] {
    return [this.#server, this.#agent].filter((program) => program !== undefined);
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
      ...serverFiles(this.#pki),
      ...more,
    });
    const ready = () => answers(this.#network.controlPlane, PORTS.serverHealth);
    await this.#server.waitUntil(ready, READY_MS, "a server that is ready");
  }

  /** Does not wait; an agent that is there already is left alone. */
  startAgent(): void {
    this.#agents++;
    this.#agent = this.#start(this.#network.node, "agent", {
      proxyServerHost: CONTROL_PLANE.ipv4,
      proxyServerPort: PORTS.agents,
      agentId: "node",
      healthServerPort: this.#agentHealth,
      adminServerPort: 0,
      drainTimeout: DRAIN,
      ...agentFiles(this.#pki),
    });
  }

  scrapeServer(): Promise<Scrape> {
    return scrape(this.#network.controlPlane, PORTS.serverHealth);
  }

  scrapeAgent(): Promise<Scrape> {
    return scrape(this.#network.node, this.#agentHealth);
  }

  /**
   * The agent's links that have lost their connection now. /metrics would say how many there were up to a second ago.
   */
  async resuming(): Promise<number> {
    const { stdout } = await this.#network.node.must([
      ...["curl", "-sS", "-m", "5"],
      `http://127.0.0.1:${this.#agentHealth}/readyz?verbose`,
    ]);
    return Number(/, resuming (\d+)/.exec(stdout)?.[1] ?? 0);
  }

  async stop(): Promise<void> {
    await Promise.all([this.#agent?.stop(), this.#server?.stop()]);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.stop();
  }

  /** Two agents that replace each other share the node's ports, as pods do not. */
  get #agentHealth(): number {
    return PORTS.agentHealth + 10 * (this.#agents % 2);
  }

  #start(where: Namespace, command: "server" | "agent", options: Options): Program {
    return where.start(`culvert ${command}`, [process.execPath, MAIN, command, ...flags(options)]);
  }
}

async function answers(where: Namespace, port: number): Promise<boolean> {
  return (await where.run(["curl", "-sf", "-m", "2", `http://127.0.0.1:${port}/readyz`])).code === 0;
}

async function scrape(where: Namespace, port: number): Promise<Scrape> {
  return new Scrape((await where.must(["curl", "-sS", "-m", "5", `http://127.0.0.1:${port}/metrics`])).stdout);
}
