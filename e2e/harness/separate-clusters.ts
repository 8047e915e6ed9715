import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import type { ServerOptions } from "../../server/options/options.ts";
import { createLogger } from "../../shared/runtime/logger.ts";
import { type Connection, connectThrough } from "./caller.ts";
import { callerTls } from "./pki-files.ts";
import { TARGETS } from "./targets.ts";
import { TempDir } from "./temp.ts";
import { World } from "./world.ts";

export type TownName = "blue" | "green";
export type Town = World<"echo">;

/** One for all: each log listens for the end of the process. */
const log = createLogger({ level: "silent", format: "json", name: "towns" });

export const agentsName = (name: TownName): string => `${name}.agents.example`;
export const callersName = (name: TownName): string => `${name}.callers.example`;

/** Clusters beside each other, each with a server and trust of its own; what stands in front knows them by name alone. */
export class Towns implements AsyncDisposable {
  readonly #towns = new Map<TownName, Town>();

  static async start(names: readonly TownName[], options: Partial<ServerOptions> = {}): Promise<Towns> {
    const towns = new Towns();
    try {
      for (const name of names) await towns.#startServer(name, options);
      return towns;
    } catch (error) {
      await towns[Symbol.asyncDispose]();
      throw error;
    }
  }

  get all(): Iterable<Town> {
    return this.#towns.values();
  }

  town(name: TownName): Town {
    return this.#towns.get(name) ?? assert.fail();
  }

  /** Where the server of this cluster listens, as `host:port`. */
  address(name: TownName, listener: "agents" | "callers"): string {
    return `127.0.0.1:${this.town(name).server.addresses[listener]?.port}`;
  }

  /** An agent of each cluster, over what stands in front. */
  async startAgents(port: number): Promise<void> {
    for (const [name, town] of this.#towns) {
      const server = [`wss://${agentsName(name)}:${port}`];
      await town.startAgent({ proxyServerHost: "", server, serverAddress: `127.0.0.1:${port}` });
    }
  }

  /** A caller of this cluster, over what stands in front, to the cluster's own target. */
  connect(name: TownName, port: number): Promise<Connection> {
    const town = this.town(name);
    const tls = { ...callerTls(town.dir.path), servername: callersName(name) };
    return connectThrough({ host: "127.0.0.1", port, tls }, town.targets.echo.address);
  }

  async #startServer(name: TownName, options: Partial<ServerOptions>): Promise<void> {
    const town: Town = new World(new TempDir(), { echo: await TARGETS.echo() }, { log });
    this.#towns.set(name, town);
    await town.makePki();
    const { serverAuthority, clusterAuthority } = town.pki;
    const forCallers = await serverAuthority.issue({ cn: name, names: [callersName(name)], usage: "server" });
    const forAgents = await clusterAuthority.issue({ cn: name, names: [agentsName(name)], usage: "server" });
    const written = (file: string, text: string): string => {
      writeFileSync(town.dir.file(file), text);
      return town.dir.file(file);
    };
    await town.startServer({
      serverId: name,
      serverCert: written("callers.crt", forCallers.cert),
      serverKey: written("callers.key", forCallers.key),
      clusterCert: written("agents.crt", forAgents.cert),
      clusterKey: written("agents.key", forAgents.key),
      ...options,
    });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const town of this.#towns.values()) await town[Symbol.asyncDispose]();
  }
}

/** The tunnel stands and carries bytes both ways. */
export async function echoes(connection: Connection, text: string): Promise<void> {
  assert.equal(connection.status, 200);
  await connection.send(text);
  assert.equal(String(await connection.readBytes(text.length)), text);
}
