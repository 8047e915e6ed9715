import assert from "node:assert/strict";
import { test } from "node:test";
import { Balancer } from "../harness/balancer.ts";
import { createSite, type Site } from "../harness/binaries.ts";
import { type Connection, connectThrough, isAnswered } from "../harness/caller.ts";
import { atFull } from "../harness/counts.ts";
import { configurations, located } from "../harness/page-configuration.ts";
import type { ManagedProcess } from "../harness/processes.ts";
import { SiteServer } from "../harness/site-server.ts";
import { SteadyCaller } from "../harness/steady-caller.ts";
import { freePort } from "../harness/targets/absent.ts";
import { TARGETS } from "../harness/targets.ts";
import { waitFor, within } from "../harness/wait.ts";
import { missingProgram } from "../proxies/harness/missing.ts";

const KILLS = atFull(5, 2);
const DEADLINE_MS = 40_000;

/** The servers of one cluster behind one address, as processes. */
class Replicas implements AsyncDisposable {
  readonly #servers: readonly SiteServer[];
  readonly #processes = new Map<number, ManagedProcess>();

  private constructor(servers: readonly SiteServer[]) {
    this.#servers = servers;
  }

  static async create(site: Site, count: number): Promise<Replicas> {
    const reserved = Array.from({ length: count }, (_, index) => SiteServer.reserve(site, `culvert-${index}`));
    return new Replicas(await Promise.all(reserved));
  }

  /** The page's balancer in front of all of them, running or not. */
  async startBalancer(port: number): Promise<Balancer> {
    const [, , page = ""] = configurations("load-balancers.md", "haproxy");
    const lines = this.#servers.map(({ agentPort }, index) => `    server culvert-${index} 127.0.0.1:${agentPort}`);
    const text = located(page, {
      ":443": `127.0.0.1:${port}`,
      "    server culvert-0 10.0.0.11:8091\n": "",
      "    server culvert-1 10.0.0.12:8091\n": "",
      "    server culvert-2 10.0.0.13:8091\n": `${lines.join("\n")}\n`,
    });
    return await Balancer.start("haproxy", text, [port]);
  }

  async start(index: number, serverCount: number): Promise<void> {
    this.#processes.set(index, await this.#server(index).start({ serverCount }));
  }

  async kill(index: number): Promise<void> {
    const process = this.#processes.get(index) ?? assert.fail();
    process.signal("SIGKILL");
    await within(process.exited, DEADLINE_MS, "the end of a server that was killed");
  }

  connect(index: number, target: string): Promise<Connection> {
    return connectThrough({ path: this.#server(index).uds }, target);
  }

  works(index: number, target: string): Promise<boolean> {
    return isAnswered({ path: this.#server(index).uds }, target);
  }

  #server(index: number): SiteServer {
    return this.#servers[index] ?? assert.fail(`there is no server ${index}`);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await Promise.all([...this.#processes.values()].map((process) => process.stop()));
  }
}

const skip = missingProgram("haproxy");

test("behind one address an agent finds all servers, is back at one that is killed, and finds one that is added", {
  skip,
}, async (context) => {
  await using echo = await TARGETS.echo();
  using site = await createSite();
  await using replicas = await Replicas.create(site, 4);
  for (const index of [0, 1, 2]) await replicas.start(index, 3);
  const port = await freePort();
  await using _balancer = await replicas.startBalancer(port);
  const healthServerPort = await freePort();
  await using agent = await site.startAgent(
    { healthServerPort, healthServerHost: "127.0.0.1" },
    { agentPort: port, wait: false },
  );
  const readyz = async () => (await fetch(`http://127.0.0.1:${healthServerPort}/readyz?verbose`)).text();
  const reads = (line: string) =>
    waitFor(async () => (await readyz()).includes(line), { deadlineMs: DEADLINE_MS, everyMs: 50, what: line });
  await reads("connected 3 of 3 wanted (servers: 3)");

  await using steady = new SteadyCaller(await replicas.connect(1, echo.address));
  const backMs: number[] = [];
  for (let kill = 1; kill <= KILLS; kill++) {
    await replicas.kill(0);
    for (const index of [1, 2]) assert.ok(await replicas.works(index, echo.address), `server ${index}, kill ${kill}`);
    const isLast = kill === KILLS;
    if (isLast) await replicas.start(3, 4);
    await replicas.start(0, isLast ? 4 : 3); // ready, with its ports open
    backMs.push(await timed(() => replicas.works(0, echo.address), `the agent to be back after kill ${kill}`));
  }
  const foundMs = await timed(() => replicas.works(3, echo.address), "the agent at the added server");
  await reads("connected 4 of 4 wanted (servers: 4)");
  context.diagnostic(`back in ${backMs.join(", ")} ms, the added server found in ${foundMs} ms`);
  await steady.assertUnharmed();
  const refused = agent.log.filter((line) => line.includes("already_connected"));
  assert.deepEqual(refused, [], "a server that it knows already is no failure");
});

/** How long it takes until the condition holds, ms. */
async function timed(condition: () => Promise<boolean>, what: string): Promise<number> {
  const begun = performance.now();
  await waitFor(condition, { deadlineMs: DEADLINE_MS, everyMs: 50, what });
  return Math.round(performance.now() - begun);
}
