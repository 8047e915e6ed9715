import assert from "node:assert/strict";
import { test } from "node:test";
import type { Agent } from "../../agent/agent.ts";
import type { AgentOptions } from "../../agent/context/options.ts";
import type { ServerOptions } from "../../server/options/options.ts";
import type { Server } from "../../server/server.ts";
import { type Connection, connectThrough, established } from "../harness/caller.ts";
import { type FaultRelay, startRelay } from "../harness/faults.ts";
import { captureLog, type LogLine } from "../harness/log-lines.ts";
import { peerEnd } from "../harness/peer-end.ts";
import { scrapeRegistry } from "../harness/scrape.ts";
import { started } from "../harness/started.ts";
import { waitFor, within } from "../harness/wait.ts";
import { startWorld, type World } from "../harness/world.ts";

type Name = "a" | "b";

/** Far longer than a test: what waits for it has not been asked, or was reset by it. */
const DRAIN_MS = 60_000;
const SOON_MS = 10_000;

interface Changes {
  readonly server?: Partial<ServerOptions>;
  readonly agent?: Partial<AgentOptions>;
}

/** Two servers side by side, a relay in front of each, and one agent with an uplink to both. */
class TwoServers implements AsyncDisposable {
  readonly relays = new Map<Name, FaultRelay>();
  readonly #world: World<"echo">;
  readonly #servers = new Map<Name, Server>();
  readonly #lines: readonly LogLine[];

  private constructor(world: World<"echo">, lines: readonly LogLine[]) {
    this.#world = world;
    this.#lines = lines;
  }

  static async start({ server: both = {}, agent = {} }: Changes = {}): Promise<TwoServers> {
    const { log, lines } = captureLog();
    const world = await startWorld({
      ...{ agents: 0, targets: ["echo"], log },
      server: { drainTimeoutMs: DRAIN_MS, ...both },
    });
    return await started(new TwoServers(world, lines), (two) => two.#start(agent));
  }

  async #start(agent: Partial<AgentOptions>): Promise<void> {
    this.#world.server.destroy(new Error("two others take its place"));
    for (const name of ["a", "b"] as const) {
      const { addresses } = await this.startServer(name);
      this.relays.set(name, await startRelay({ host: "127.0.0.1", port: addresses.agents?.port ?? 0 }));
    }
    const server = [...this.relays.values()].map(({ port }) => `wss://127.0.0.1:${port}`);
    await this.#world.startAgent({ server, proxyServerHost: "", ...agent });
  }

  get agent(): Agent {
    return this.#world.agents[0] ?? assert.fail("no agent");
  }

  server(name: Name): Server {
    return this.#servers.get(name) ?? assert.fail(`no server ${name}`);
  }

  relay(name: Name): FaultRelay {
    return this.relays.get(name) ?? assert.fail(`no relay ${name}`);
  }

  /** Also again, where the agent knows it. */
  async startServer(name: Name, options: Partial<ServerOptions> = {}): Promise<Server> {
    const agentPort = this.#servers.get(name)?.addresses.agents?.port ?? 0;
    const udsName = this.#world.dir.file(name);
    const server = await this.#world.startServer({ serverId: name, udsName, agentPort, ...options });
    this.#servers.set(name, server);
    return server;
  }

  /** One CONNECT to the echo target, by a caller of this server. */
  async connect(name: Name): Promise<Connection> {
    const connection = await established(
      connectThrough({ path: this.#world.dir.file(name) }, this.#world.targets.echo.address),
    );
    return connection;
  }

  /** The agent's log lines about its uplink to this server. */
  said(name: Name): string[] {
    const url = `wss://127.0.0.1:${this.relay(name).port}/culvert/v1/tunnel`;
    return this.#lines
      .filter(({ msg, server }) => server === url && /^(uplink|server asked)/.test(msg))
      .map(({ msg }) => msg);
  }

  async connectedServers(): Promise<[connected: number, wanted: number]> {
    const scrape = await scrapeRegistry(this.agent.metrics.registry);
    return [scrape.value("culvert_agent_connected_servers"), scrape.value("culvert_agent_wanted_servers")];
  }

  /** The server takes nothing new from now on; resolves with its end. */
  async drain(name: Name): Promise<{ readonly closed: Promise<void>; isOver(): boolean }> {
    let over = false;
    const closed = this.server(name)
      .close()
      .then(() => {
        over = true;
      });
    await waitFor(() => [...this.server(name).tunnels.tunnels()].every(({ draining }) => draining));
    return { closed, isOver: () => over };
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const server of this.#servers.values()) server.destroy(new Error("the test is over"));
    await this.#world[Symbol.asyncDispose]();
    for (const relay of this.relays.values()) await relay[Symbol.asyncDispose]();
  }
}

async function stillThere(...connections: readonly Connection[]): Promise<void> {
  for (const connection of connections) {
    await connection.send("still here");
    assert.equal((await connection.readBytes(10, SOON_MS)).toString(), "still here");
  }
}

/** Half-closes and finds the target's FIN behind nothing: no reset. */
async function endCleanly(...connections: readonly Connection[]): Promise<void> {
  for (const connection of connections) {
    connection.end();
    assert.equal(await connection.readAll(), "");
  }
}

test("a server that drains: its streams run on to their end, new ones go at the other, and its successor gets the agent back", async () => {
  await using two = await TwoServers.start();
  const atA = [await two.connect("a"), await two.connect("a")];
  const atB = await two.connect("b");
  assert.deepEqual(await two.connectedServers(), [2, 2]);

  const { closed, isOver } = await two.drain("a");
  await assert.rejects(two.connect("a"));
  const later = await two.connect("b");
  await stillThere(...atA, atB, later);
  await waitFor(async () => (await two.connectedServers())[0] === 1);

  // The way to a server that drains may be cut as any other.
  two.relay("a").cut("rst");
  await stillThere(...atA, atB, later);
  assert.ok(two.said("a").includes("uplink resumed"));
  assert.equal(isOver(), false);

  await endCleanly(...atA);
  await within(closed, SOON_MS, "the end of the drained server, whose streams have ended");
  await stillThere(atB, later);

  await two.startServer("a");
  await within(two.agent.whenConnected(), SOON_MS, "the agent to be back");
  await stillThere(await two.connect("a"), atB, later);
  assert.deepEqual(await two.connectedServers(), [2, 2]);
  assert.deepEqual(two.said("b"), ["uplink connected"], "nothing of it was noticed at the other");
});

test("a server that begins to drain while its link is cut tells the agent when the link is back, and loses no stream", async () => {
  await using two = await TwoServers.start();
  const atA = await two.connect("a");
  await two.relay("a").unplug();
  const { closed, isOver } = await two.drain("a");
  await stillThere(await two.connect("b"));
  await two.relay("a").plug();
  await stillThere(atA);
  await waitFor(() => two.said("a").includes("server asked the agent to reconnect"));
  assert.equal(isOver(), false);
  await endCleanly(atA);
  await within(closed, SOON_MS, "the end of the drained server");
});

test("a server that dies, and one that refuses the agent from then on, touch nothing of the other", async () => {
  // Nothing is kept for a resume, which would be refused in its place.
  await using two = await TwoServers.start({ server: { linkGraceMs: 0 } });
  const atA = await two.connect("a");
  const atB = await two.connect("b");
  const ended = peerEnd(atA.socket.resume());
  two.server("a").destroy(new Error("killed by the test"));
  await within(ended, SOON_MS, "the end of the dead server's caller");
  await stillThere(atB, await two.connect("b"));

  await two.startServer("a", { agentIdentities: ["CN=somebody-else"] });
  const refused = "uplink refused: the server does not accept this agent";
  await waitFor(() => two.said("a").includes(refused), { deadlineMs: SOON_MS });
  await stillThere(atB, await two.connect("b"));
  assert.deepEqual(await two.connectedServers(), [1, 2]);
  assert.deepEqual(two.said("b"), ["uplink connected"]);
});

test("an agent that drains says so to every server, and ends when the streams of both have ended", async () => {
  await using two = await TwoServers.start({ agent: { drainTimeoutMs: DRAIN_MS } });
  const open = [await two.connect("a"), await two.connect("b")];
  const closed = two.agent.close();
  for (const name of ["a", "b"] as const) {
    await waitFor(() => [...two.server(name).tunnels.tunnels()].every(({ draining }) => draining));
  }
  await stillThere(...open);
  await endCleanly(...open);
  await within(closed, SOON_MS, "the end of the agent");
});
