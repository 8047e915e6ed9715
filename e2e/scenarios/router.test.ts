import assert from "node:assert/strict";
import { once } from "node:events";
import { writeFileSync } from "node:fs";
import { connect } from "node:net";
import { test } from "node:test";
import { connect as connectTls } from "node:tls";
import { routerOptions } from "../../router/options.ts";
import { type Router, startRouter } from "../../router/router.ts";
import { defaultsOf } from "../../shared/config/options.ts";
import { createLogger } from "../../shared/runtime/logger.ts";
import { scrapeRegistry } from "../harness/scrape.ts";
import {
  agentsName,
  callersName,
  echoes,
  type SeparateClusterName,
  SeparateClusters,
} from "../harness/separate-clusters.ts";
import { freePort } from "../harness/targets/absent.ts";
import { tcpTarget } from "../harness/targets/tcp.ts";
import { TempDir } from "../harness/temp.ts";
import { waitFor } from "../harness/wait.ts";

interface RouteText {
  readonly sni: readonly string[];
  readonly to: readonly string[];
}

const log = createLogger({ level: "silent", format: "json", name: "router" });

/** A router with the servers of these clusters behind it, and their agents connected through it. */
class RoutedTowns implements AsyncDisposable {
  readonly clusters: SeparateClusters;
  readonly #names: readonly SeparateClusterName[];
  readonly #dir = new TempDir();
  #router: Router | undefined;

  private constructor(clusters: SeparateClusters, names: readonly SeparateClusterName[]) {
    this.clusters = clusters;
    this.#names = names;
  }

  static async start(...names: SeparateClusterName[]): Promise<RoutedTowns> {
    const routed = new RoutedTowns(await SeparateClusters.start(names), names);
    try {
      await routed.#start();
      return routed;
    } catch (error) {
      await routed[Symbol.asyncDispose]();
      throw error;
    }
  }

  async #start(): Promise<void> {
    const routes = this.write(this.routes);
    const ports = { port: 0, healthPort: 0, adminPort: 0 };
    const addresses = { bindAddress: "127.0.0.1", healthBindAddress: "127.0.0.1" };
    const values = { ...defaultsOf(routerOptions), ...ports, ...addresses, routes, drainTimeoutMs: 60_000 };
    this.#router = await startRouter(values, { log, listenEphemeral: true });
    await this.clusters.startAgents(this.port);
  }

  get router(): Router {
    return this.#router ?? assert.fail();
  }

  get port(): number {
    return this.router.addresses.clients?.port ?? 0;
  }

  /** One for the agents and one for the callers of each cluster. */
  get routes(): RouteText[] {
    return this.#names.flatMap((name) => [
      { sni: [agentsName(name)], to: [this.clusters.address(name, "agents")] },
      { sni: [callersName(name)], to: [this.clusters.address(name, "callers")] },
    ]);
  }

  write(routes: readonly RouteText[]): string {
    const file = this.#dir.file("routes.yaml");
    writeFileSync(file, routes.map((route) => JSON.stringify(route)).join("\n---\n"));
    return file;
  }

  async metric(name: string, labels: Readonly<Record<string, string>>): Promise<number> {
    return (await scrapeRegistry(this.router.metrics.registry)).value(`culvert_router_${name}`, labels);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.clusters[Symbol.asyncDispose]();
    this.#router?.destroy(new Error("the test ends"));
    await this.#router?.close();
    this.#dir[Symbol.dispose]();
  }
}

test("agents and callers of two clusters come through one router, each to its own server", async () => {
  await using routed = await RoutedTowns.start("blue", "green");
  for (const name of ["blue", "green"] as const) {
    assert.equal([...routed.clusters.cluster(name).server.tunnels.tunnels()].length, 1);
    await using connection = await routed.clusters.connect(name, routed.port);
    await echoes(connection, `hello from ${name}`);
    assert.equal(await routed.metric("connections_total", { route: agentsName(name) }), 1);
    assert.equal(await routed.metric("connections_total", { route: callersName(name) }), 1);
  }
});

test("a name that is nobody's is told to a TLS client with an alert", async () => {
  await using routed = await RoutedTowns.start("blue");
  for (const [servername, reason] of [
    ["nobody.example", "unknown_name"],
    ["__proto__", "unknown_name"],
    [undefined, "no_name"],
  ] as const) {
    const socket = connectTls({ host: "127.0.0.1", port: routed.port, ...(servername && { servername }) });
    const [error] = await once(socket, "error");
    assert.match(String(error), /unrecognized name/i);
    assert.ok((await routed.metric("connections_refused_total", { reason })) > 0);
  }
});

test("a ClientHello in segments of one byte finds its way, and so does all that follows", async () => {
  await using routed = await RoutedTowns.start("blue");
  const { port } = routed;
  await using drip = await tcpTarget((client) => {
    const router = connect({ host: "127.0.0.1", port, noDelay: true });
    client.on("data", (chunk: Buffer) => {
      for (const byte of chunk) router.write(Buffer.from([byte]));
    });
    router.on("error", () => client.destroy()).pipe(client);
    client.on("close", () => router.destroy());
  });
  await using connection = await routed.clusters.connect("blue", drip.port);
  await echoes(connection, "byte by byte");
});

test("a backend that is gone is passed over, and a route that moves is followed by the next connection", async () => {
  await using routed = await RoutedTowns.start("blue");
  const { clusters, routes } = routed;
  const reads = () => routed.metric("route_reads_total", { result: "ok" });
  const dead = `127.0.0.1:${await freePort()}`;
  await using steadyCaller = await clusters.connect("blue", routed.port);
  routed.write(routes.map(({ sni, to }) => ({ sni, to: [dead, ...to] })));
  await waitFor(async () => (await reads()) === 1, { what: "the new routes" });
  for (let count = 0; count < 3; count++) {
    await using connection = await clusters.connect("blue", routed.port);
    await echoes(connection, "past the dead one");
  }
  routed.write(routes.slice(0, 1));
  await waitFor(async () => (await reads()) === 2, { what: "routes without callers" });
  await assert.rejects(clusters.connect("blue", routed.port), /unrecognized name/i);
  await echoes(steadyCaller, "open connections live on");
});

test("a router that drains keeps tunnels and callers, and takes no new ones", async () => {
  await using routed = await RoutedTowns.start("blue");
  await using connection = await routed.clusters.connect("blue", routed.port);
  const closed = routed.router.close();
  await assert.rejects(routed.clusters.connect("blue", routed.port), { code: "ECONNREFUSED" });
  await echoes(connection, "still here");
  for (const { agents } of routed.clusters.all) {
    for (const agent of agents) agent.destroy(new Error("the test goes on without it"));
  }
  connection.socket.destroy();
  await closed;
});
