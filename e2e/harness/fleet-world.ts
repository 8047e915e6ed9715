import assert from "node:assert/strict";
import type { Agent } from "../../agent/agent.ts";
import type { ServerOptions } from "../../server/options/options.ts";
import type { Server } from "../../server/server.ts";
import { type Connection, connectThrough, established, isAnswered } from "./caller.ts";
import { captureLog, type LogLine } from "./log-lines.ts";
import { PeerFiles } from "./peer-files.ts";
import { started } from "./started.ts";
import { waitFor } from "./wait.ts";
import { startWorld, type World } from "./world.ts";

/** Several servers with a directory in one process, and agents that are each connected to one of them. */
export class FleetWorld implements AsyncDisposable {
  readonly lines: readonly LogLine[];
  readonly #world: World<"echo">;
  readonly #peers: PeerFiles;
  readonly #servers = new Map<string, Server>();
  readonly #directory: Partial<ServerOptions>;

  private constructor(
    world: World<"echo">,
    peers: PeerFiles,
    lines: readonly LogLine[],
    directory: Partial<ServerOptions>,
  ) {
    this.#world = world;
    this.#peers = peers;
    this.lines = lines;
    this.#directory = directory;
  }

  /** `directory`: the options of it, such as `directory` and `directoryCredentials`. */
  static async start(
    names: readonly string[],
    directory: (dir: string) => Partial<ServerOptions>,
  ): Promise<FleetWorld> {
    const { log, lines } = captureLog();
    const world = await startWorld({ agents: 0, targets: ["echo"], log });
    world.server.destroy(new Error("those of the fleet take its place"));
    const peers = await PeerFiles.create(world.dir);
    return await started(new FleetWorld(world, peers, lines, directory(world.dir.path)), async (fleet) => {
      for (const name of names) await fleet.startServer(name);
    });
  }

  get dir(): string {
    return this.#world.dir.path;
  }

  async startServer(name: string, more: Partial<ServerOptions> = {}): Promise<Server> {
    const { dir } = this.#world;
    const server = await this.#world.startServer({
      ...{ serverId: name, udsName: dir.file(name), peerAddress: "127.0.0.1", peerBindAddress: "127.0.0.1" },
      ...{ peerPort: 0, ...(await this.#peers.certificatesOf(name)), peerIdentities: ["O=culvert-servers"] },
      // A busy machine takes its time for the first handshake between two servers.
      ...{ agentAckTimeoutMs: 5_000, connectTimeoutMs: 20_000 },
      ...this.#directory,
      ...more,
    });
    this.#servers.set(name, server);
    return server;
  }

  server(name: string): Server {
    return this.#servers.get(name) ?? assert.fail(`no server ${name}`);
  }

  /** An agent of this server alone; resolves when it is connected. */
  async startAgent(name: string): Promise<Agent> {
    const port = this.server(name).addresses.agents?.port;
    return await this.#world.startAgent({ server: [`wss://127.0.0.1:${port}`], proxyServerHost: "" });
  }

  /** One CONNECT to the echo target by a caller of this server. */
  connect(name: string): Promise<Connection> {
    return connectThrough({ path: this.#world.dir.file(name) }, this.#world.targets.echo.address);
  }

  /** Whether a CONNECT at this server is answered with 200. */
  reaches(name: string): Promise<boolean> {
    return isAnswered({ path: this.#world.dir.file(name) }, this.#world.targets.echo.address);
  }

  /** A CONNECT that is answered 200, and a word that comes back over it. */
  async echo(name: string): Promise<Connection> {
    const connection = await established(this.connect(name));
    await connection.send("over the fleet");
    assert.equal((await connection.readBytes(14, 10_000)).toString(), "over the fleet");
    return connection;
  }

  /** The line of the server's /readyz about the directory. */
  async readiness(name: string): Promise<{ readonly status: number; readonly line: string }> {
    const port = this.server(name).addresses.health?.port;
    const response = await fetch(`http://127.0.0.1:${port}/readyz?verbose`);
    const text = await response.text();
    return { status: response.status, line: text.split("\n").find((line) => line.includes("directory")) ?? "" };
  }

  async untilConnected(...names: readonly string[]): Promise<void> {
    for (const name of names) {
      await waitFor(async () => /connected through/.test((await this.readiness(name)).line), { deadlineMs: 10_000 });
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const server of this.#servers.values()) server.destroy(new Error("the test is over"));
    await this.#world[Symbol.asyncDispose]();
  }
}
