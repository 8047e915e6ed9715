import { mkdtempSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { Program } from "./program.ts";
import { freePort } from "./targets/absent.ts";
import { takesConnections } from "./wait.ts";

export interface NatsOptions {
  /** A folder for configuration and nothing else. */
  readonly dir: string;
  /** More than one are a cluster. */
  readonly count?: number;
  /** Lines of every server's configuration, such as `authorization { … }`. */
  readonly config?: string;
}

const READY_MS = 30_000;

interface NatsServer {
  readonly port: number;
  readonly monitorPort: number;
  readonly config: string;
  process: Program | undefined;
}

/** Debian's nats-server, one or several in a cluster, which can be killed and started again where they were. */
export class NatsServers implements AsyncDisposable {
  readonly #servers: NatsServer[] = [];

  static async start({ dir, count = 1, config = "" }: NatsOptions): Promise<NatsServers> {
    const all = new NatsServers();
    const ports = await Promise.all(Array.from({ length: 3 * count }, () => freePort()));
    const folder = mkdtempSync(join(dir, "nats-"));
    const routes = ports.slice(count, 2 * count).map((port) => `nats-route://127.0.0.1:${port}`);
    for (let at = 0; at < count; at++) {
      const cluster = `cluster { name: fleet, listen: "127.0.0.1:${ports[count + at]}", routes: ${JSON.stringify(routes)} }`;
      const path = join(folder, `${at}.conf`);
      const monitorPort = ports[2 * count + at] ?? 0;
      const own = [`listen: "127.0.0.1:${ports[at]}"`, `http: "127.0.0.1:${monitorPort}"`, `server_name: nats-${at}`];
      const lines = [...own, count > 1 ? cluster : "", config];
      writeFileSync(path, `${lines.join("\n")}\n`);
      all.#servers.push({ port: ports[at] ?? 0, monitorPort, config: path, process: undefined });
    }
    for (let at = 0; at < count; at++) await all.start(at);
    return all;
  }

  urls(scheme: "nats" | "tls" = "nats"): string[] {
    return this.#servers.map(({ port }) => `${scheme}://127.0.0.1:${port}`);
  }

  /** The number of the server that listens at `127.0.0.1:port`. */
  numberOf(address: string): number {
    return this.#servers.findIndex(({ port }) => address.endsWith(`:${port}`));
  }

  /** Resolves when its port is open. */
  async start(at = 0): Promise<void> {
    const server = this.#server(at);
    server.process = new Program(`nats-server ${at}`, ["nats-server", "-c", server.config]);
    await server.process.waitUntil(() => takesConnections(server), READY_MS, "it to listen");
  }

  /** SIGKILL. */
  async kill(at = 0): Promise<void> {
    await this.#server(at).process?.kill();
  }

  /** Messages that have come in since the start: of clients, and of other servers of the cluster. */
  async messagesIn(at = 0): Promise<number> {
    const response = await fetch(`http://127.0.0.1:${this.#server(at).monitorPort}/varz`);
    return ((await response.json()) as { readonly in_msgs: number }).in_msgs;
  }

  #server(at: number): NatsServer {
    const server = this.#servers[at];
    if (server === undefined) throw new Error(`there is no nats-server ${at}`);
    return server;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await Promise.all(this.#servers.map((_, at) => this.kill(at)));
  }
}
