import assert from "node:assert/strict";
import { once } from "node:events";
import { createServer, type IncomingMessage } from "node:http";
import { type AddressInfo, connect } from "node:net";
import type { Duplex } from "node:stream";
import { test } from "node:test";
import { type Agent, startAgent } from "../../agent/agent.ts";
import { type AgentOptions, agentOptions } from "../../agent/context/options.ts";
import type { NameResolver } from "../../agent/context/servers.ts";
import type { Server } from "../../server/server.ts";
import { defaultsOf } from "../../shared/config/options.ts";
import { captureLog, type LogLine } from "../harness/log-lines.ts";
import { agentFiles } from "../harness/pki-files.ts";
import { scrapeRegistry } from "../harness/scrape.ts";
import { blackHoleTarget, freePort } from "../harness/targets/absent.ts";
import { waitFor } from "../harness/wait.ts";
import { startWorld, type World } from "../harness/world.ts";

const SOON_MS = 10_000;

/** Servers on one port of several addresses of this machine, and an agent whose DNS the test writes. */
class Named implements AsyncDisposable {
  readonly port: number;
  /** The agent's log. */
  lines: readonly LogLine[] = [];
  /** The addresses that DNS has for the servers' name. */
  addresses: string[] = [];
  readonly #world: World<never>;
  readonly #servers = new Map<string, Server>();
  /** How often the agent has asked its DNS. */
  lookups = 0;
  /** How long its answers may be kept, seconds. */
  ttl = 60;
  #agent: Agent | undefined;

  private constructor(world: World<never>, port: number) {
    this.#world = world;
    this.port = port;
  }

  static async start(...addresses: string[]): Promise<Named> {
    const world = await startWorld({ agents: 0 });
    world.server.destroy(new Error("others take its place"));
    const named = new Named(world, await freePort());
    for (const address of addresses) await named.startServer(address);
    named.addresses = addresses;
    return named;
  }

  async startServer(address: string, serverCount = 0): Promise<Server> {
    const udsName = this.#world.dir.file(address);
    const listen = { agentBindAddress: address, agentPort: this.port, udsName };
    const server = await this.#world.startServer({ serverId: `at-${address}`, serverCount, ...listen });
    this.#servers.set(address, server);
    return server;
  }

  server(address: string): Server {
    return this.#servers.get(address) ?? assert.fail();
  }

  async startAgent(options: Partial<AgentOptions> = {}, srv: NameResolver["srv"] = async () => []): Promise<Agent> {
    const values: AgentOptions = {
      ...defaultsOf(agentOptions),
      ...{ agentId: "a", healthServerPort: 0, adminServerPort: 0, ...agentFiles(this.#world.dir.path) },
      ...{ server: [`wss://localhost:${this.port}`], syncIntervalMs: 50, syncIntervalCapMs: 500 },
      ...options,
    };
    const { log, lines } = captureLog();
    this.lines = lines;
    const find: NameResolver["find"] = async () => {
      this.lookups++;
      return this.addresses.map((address) => ({ address, family: 4 }));
    };
    this.#agent = await startAgent(values, { log, resolver: { find, srv, ttl: async () => this.ttl } });
    return this.#agent;
  }

  /** The servers that have the agent, in order. */
  get holders(): string[] {
    const all = [...this.#servers].filter(([, server]) =>
      [...server.tunnels.tunnels()].some(({ draining }) => !draining),
    );
    return all.map(([address]) => address).sort();
  }

  async counts(): Promise<[connected: number, wanted: number, known: number]> {
    const scrape = await scrapeRegistry(this.#agent?.metrics.registry ?? assert.fail());
    const names = ["connected", "wanted", "known"].map((name) => scrape.value(`culvert_agent_${name}_servers`));
    return names as [number, number, number];
  }

  async reaches(...expected: [connected: number, wanted: number, known: number]): Promise<void> {
    const isThere = async () => String(await this.counts()) === String(expected);
    await waitFor(isThere, { deadlineMs: SOON_MS, what: `${expected} and not ${await this.counts()}` });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    const ended = new Error("the test is over");
    this.#agent?.destroy(ended);
    for (const server of this.#servers.values()) server.destroy(ended);
    await this.#world[Symbol.asyncDispose]();
  }
}

/** Log lines that a reader would take for a failure. */
function complaints({ lines }: Named): string[] {
  return lines.filter(({ level }) => level !== "info" && level !== "debug").map(({ msg }) => msg);
}

test("every address of a name gets a tunnel; a new one is found when servers say that they are more, and one that drains is left", async () => {
  await using named = await Named.start("127.0.0.1", "127.0.0.2");
  await named.startAgent();
  await named.reaches(2, 2, 2);
  assert.deepEqual(named.holders, ["127.0.0.1", "127.0.0.2"]);

  await named.startServer("127.0.0.3");
  named.addresses = ["127.0.0.1", "127.0.0.2", "127.0.0.3"];
  named.server("127.0.0.1").servers.set(3);
  await named.reaches(3, 3, 3);
  assert.deepEqual(named.holders, ["127.0.0.1", "127.0.0.2", "127.0.0.3"]);

  // In order: what counts the servers says so, DNS too, and then it ends.
  named.addresses = ["127.0.0.1", "127.0.0.2"];
  for (const address of named.addresses) named.server(address).servers.set(2);
  await named.server("127.0.0.3").close();
  await named.reaches(2, 2, 2);
  assert.deepEqual(named.holders, ["127.0.0.1", "127.0.0.2"]);
});

test("addresses that lead to one server are one server, and no failure", async () => {
  await using named = await Named.start("0.0.0.0");
  named.addresses = ["127.0.0.1", "127.0.0.2", "127.0.0.3"];
  await named.startAgent();
  await waitFor(() => named.lines.some(({ msg }) => msg === "looking for another server"), { deadlineMs: SOON_MS });
  await named.reaches(1, 1, 1);
  assert.deepEqual(complaints(named), []);
});

test("with a number in --uplinks an agent wants that many servers, and looks for them, until servers say that they are fewer", async () => {
  await using named = await Named.start("127.0.0.1", "127.0.0.2");
  let turn = 0;
  let onlyFirst = true;
  // A balancer, of which the agent sees one address.
  await using proxy = await ConnectProxy.start(named.port, () =>
    onlyFirst ? "127.0.0.1" : (named.addresses[turn++ % 2] ?? ""),
  );
  await named.startAgent({ proxy: [`http://127.0.0.1:${proxy.port}`], uplinks: "3" });
  await named.reaches(1, 3, 3);

  onlyFirst = false;
  await named.reaches(2, 3, 3);
  for (const address of named.addresses) named.server(address).servers.set(2);
  await named.reaches(2, 2, 2);
  assert.deepEqual(named.holders, ["127.0.0.1", "127.0.0.2"]);
});

test("a smaller number of servers closes no tunnel", async () => {
  await using named = await Named.start("127.0.0.1", "127.0.0.2");
  await named.startAgent();
  await named.reaches(2, 2, 2);
  for (const address of named.addresses) named.server(address).servers.set(1);
  await named.reaches(2, 1, 1);
  assert.deepEqual(named.holders, ["127.0.0.1", "127.0.0.2"]);
});

test("SRV records say host and port of each server; certificates are verified for the name after the labels", async () => {
  await using named = await Named.start("127.0.0.1", "127.0.0.2");
  const records = named.addresses.map((name) => ({ name, port: named.port, priority: 1, weight: 1 }));
  await named.startAgent({ server: ["wss+srv://_culvert._tcp.localhost"] }, async () => records);
  await named.reaches(2, 2, 2);
  assert.deepEqual(named.holders, ["127.0.0.1", "127.0.0.2"]);
});

test("where no host of the lowest SRV priority can be reached the next one serves, until one of the lowest is back", async () => {
  await using silent = await blackHoleTarget("127.0.0.4");
  await using named = await Named.start("127.0.0.2");
  named.ttl = 5;
  const record = (name: string, priority: number, port = named.port) => ({ name, port, priority, weight: 0 });
  const lowest = [record("127.0.0.1", 1), record("nobody.invalid", 1), record(silent.host, 1, silent.port)];
  const options = { server: ["wss+srv://_culvert._tcp.localhost"], handshakeTimeoutMs: 500 };
  await named.startAgent(options, async () => [record("127.0.0.2", 2), ...lowest]);
  await named.reaches(1, 1, 1);
  assert.deepEqual(named.holders, ["127.0.0.2"]);
  await named.startServer("127.0.0.1");
  await waitFor(() => String(named.holders) === "127.0.0.1", { deadlineMs: 30_000, what: "the return" });
  assert.equal(named.lines.filter(({ msg }) => msg === "a lower SRV priority can be reached again").length, 1);
});

test("an agent of one uplink goes on to SRV records when the URL before them does not answer", async () => {
  await using named = await Named.start("127.0.0.1");
  const records = [{ name: "127.0.0.1", port: named.port, priority: 1, weight: 1 }];
  const server = [`wss://localhost:${await freePort()}`, "wss+srv://_culvert._tcp.localhost"];
  await named.startAgent({ server, uplinks: "1" }, async () => records);
  await named.reaches(1, 1, 1);
});

test("through a proxy, which resolves the name, an agent finds all servers and asks no DNS", async () => {
  await using named = await Named.start("127.0.0.1", "127.0.0.2");
  for (const address of named.addresses) named.server(address).servers.set(2);
  let turn = 0;
  await using proxy = await ConnectProxy.start(named.port, () => named.addresses[turn++ % 2] ?? "");
  await named.startAgent({ proxy: [`http://127.0.0.1:${proxy.port}`] });
  await named.reaches(2, 2, 2);
  assert.deepEqual(named.holders, ["127.0.0.1", "127.0.0.2"]);
  assert.deepEqual([named.lookups, [...proxy.asked]], [0, [`localhost:${named.port}`]]);
});

/** An HTTP proxy that leads each CONNECT to the address that the test names. */
class ConnectProxy implements AsyncDisposable {
  /** The targets that were asked for. */
  readonly asked = new Set<string>();
  readonly #server = createServer();
  readonly #sockets = new Set<Duplex>();

  private constructor(port: number, next: () => string) {
    this.#server.on("connect", ({ url = "" }: IncomingMessage, near: Duplex) => {
      this.asked.add(url);
      const far = connect({ host: next(), port });
      for (const socket of [near, far]) this.#sockets.add(socket.on("error", () => {}));
      far.once("connect", () => {
        near.write("HTTP/1.1 200 OK\r\n\r\n");
        near.pipe(far).pipe(near);
      });
      near.on("close", () => far.destroy());
      far.on("close", () => near.destroy());
    });
  }

  static async start(port: number, next: () => string): Promise<ConnectProxy> {
    const proxy = new ConnectProxy(port, next);
    await once(proxy.#server.listen(0, "127.0.0.1"), "listening");
    return proxy;
  }

  get port(): number {
    return (this.#server.address() as AddressInfo).port;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const socket of this.#sockets) socket.destroy();
    await new Promise((resolve) => this.#server.close(resolve));
  }
}
