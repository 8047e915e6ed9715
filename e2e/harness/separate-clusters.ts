import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import type { ServerOptions } from "../../server/options/options.ts";
import { createLogger } from "../../shared/runtime/logger.ts";
import { type Connection, connectThrough } from "./caller.ts";
import { callerTls } from "./pki-files.ts";
import { started } from "./started.ts";
import { TARGETS } from "./targets.ts";
import { TempDir } from "./temp.ts";
import { World } from "./world.ts";

type SeparateClusterName = "blue" | "green";
type SeparateCluster = World<"echo">;

/** A single log for all: each log listens for the end of the process. */
const log = createLogger({ level: "silent", format: "json", name: "clusters" });

export const agentsName = (name: SeparateClusterName): string => `${name}.agents.example`;
export const callersName = (name: SeparateClusterName): string => `${name}.callers.example`;

/**
 * Clusters beside each other, each with a server and trust of its own; what stands in front knows them by name alone.
 */
export class SeparateClusters implements AsyncDisposable {
  readonly #clusters = new Map<SeparateClusterName, SeparateCluster>();

  static start(names: readonly SeparateClusterName[], options: Partial<ServerOptions> = {}): Promise<SeparateClusters> {
    return started(new SeparateClusters(), async (clusters) => {
      for (const name of names) await clusters.#startServer(name, options);
    });
  }

  get all(): Iterable<SeparateCluster> {
    return this.#clusters.values();
  }

  cluster(name: SeparateClusterName): SeparateCluster {
    return this.#clusters.get(name) ?? assert.fail();
  }

  /** Where the server of this cluster listens, as `host:port`. */
  address(name: SeparateClusterName, listener: "agents" | "callers"): string {
    return `127.0.0.1:${this.cluster(name).server.addresses[listener]?.port}`;
  }

  /** An agent of each cluster, over what stands in front. */
  async startAgents(port: number): Promise<void> {
    for (const [name, cluster] of this.#clusters) {
      const server = [`wss://${agentsName(name)}:${port}`];
      await cluster.startAgent({ proxyServerHost: "", server, serverAddress: `127.0.0.1:${port}` });
    }
  }

  /** A caller of this cluster, over what stands in front, to the cluster's own target. */
  connect(name: SeparateClusterName, port: number): Promise<Connection> {
    const cluster = this.cluster(name);
    const tls = { ...callerTls(cluster.dir.path), servername: callersName(name) };
    return connectThrough({ host: "127.0.0.1", port, tls }, cluster.targets.echo.address);
  }

  async #startServer(name: SeparateClusterName, options: Partial<ServerOptions>): Promise<void> {
    const cluster: SeparateCluster = new World(new TempDir(), { echo: await TARGETS.echo() }, { log });
    this.#clusters.set(name, cluster);
    await cluster.makePki();
    const { serverAuthority, clusterAuthority } = cluster.pki;
    const forCallers = await serverAuthority.issue({ cn: name, names: [callersName(name)], usage: "server" });
    const forAgents = await clusterAuthority.issue({ cn: name, names: [agentsName(name)], usage: "server" });
    const written = (file: string, text: string): string => {
      writeFileSync(cluster.dir.file(file), text);
      return cluster.dir.file(file);
    };
    await cluster.startServer({
      serverId: name,
      serverCert: written("callers.crt", forCallers.cert),
      serverKey: written("callers.key", forCallers.key),
      clusterCert: written("agents.crt", forAgents.cert),
      clusterKey: written("agents.key", forAgents.key),
      ...options,
    });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const cluster of this.#clusters.values()) await cluster[Symbol.asyncDispose]();
  }
}

/** The tunnel stands and carries bytes both ways. */
export async function echoes(connection: Connection, text: string): Promise<void> {
  assert.equal(connection.status, 200);
  await connection.send(text);
  assert.equal(String(await connection.readBytes(text.length)), text);
}
