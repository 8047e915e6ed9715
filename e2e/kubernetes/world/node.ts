import type { Program } from "../../harness/program.ts";
import { Scrape } from "../../harness/scrape.ts";
import { PORTS } from "./addresses.ts";
import type { Namespace } from "./namespace.ts";
import type { WorldPki } from "./pki.ts";

/** The node's services: kubelet, web server, webhook, aggregated API, and a target that speaks first. */
export class NodeStandIn implements AsyncDisposable {
  readonly program: Program;
  readonly #namespace: Namespace;
  readonly #pki: WorldPki;

  constructor(namespace: Namespace, binary: string, pki: WorldPki) {
    this.#namespace = namespace;
    this.#pki = pki;
    this.program = namespace.start("node-stand-in", [
      binary,
      `--cert=${pki.node.cert}`,
      `--key=${pki.node.key}`,
      `--client-ca=${pki.kubeletClient.ca}`,
      `--requestheader-ca=${pki.frontProxy.ca}`,
    ]);
  }

  async whenReady(): Promise<void> {
    await this.program.waitForLog(/"ready":true/);
  }

  /** How many connections a port of it has now. */
  async openConnections(port: "http"): Promise<number> {
    return (await this.scrape()).value("node_stand_in_open_connections", { port });
  }

  async scrape(): Promise<Scrape> {
    const { cert, key } = this.#pki.kubeletClient;
    const identity = ["--cert", cert, "--key", key, "--cacert", this.#pki.node.ca];
    const url = `https://127.0.0.1:${PORTS.kubelet}/metrics`;
    const { stdout } = await this.#namespace.must(["curl", "-sS", "-m", "5", ...identity, url]);
    return new Scrape(stdout);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.program.stop();
  }
}
