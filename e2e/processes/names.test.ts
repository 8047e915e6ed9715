import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import { describe, test } from "node:test";
import { createPki } from "../../cli/pki/pki.ts";
import { helloFor } from "../../shared/listen/testing/client-hello.ts";
import { Site } from "../harness/binaries.ts";
import { connectThrough, isAnswered } from "../harness/caller.ts";
import { ECHO_PORT, NamesNetwork } from "../harness/names-network.ts";
import { flags } from "../harness/pki-files.ts";
import type { Program } from "../harness/program.ts";
import { waitFor } from "../harness/wait.ts";
import { missing } from "../proxies/harness/missing.ts";

const skip = missing();
const [CALLERS, AGENTS, HEALTH, ROUTER] = [7_001, 7_002, 7_003, 7_004];
const GRACE_MS = 30_000;

/** Server and agent in the namespace. The callers' socket can be reached from here. */
async function startSite(network: NamesNetwork, servers: readonly string[] = []) {
  const site = new Site({ callers: CALLERS, agents: AGENTS, health: HEALTH });
  await createPki({ dir: site.dir.path, clusterNames: ["server.test", "localhost"] });
  const server = network.start(site.serverArguments());
  const [command = "", ...rest] = site.agentArguments({ healthServerPort: 0 });
  const urls = [...servers, `wss://server.test:${AGENTS}`].map((url) => `--server=${url}`);
  const agent = network.start([command, ...rest.filter((flag) => !flag.startsWith("--proxy-server-")), ...urls]);
  const stop = async (): Promise<void> => {
    await Promise.all([agent.kill(), server.kill()]);
    site[Symbol.dispose]();
  };
  try {
    await server.waitForLog("server started");
    const isServed = () => isAnswered(site.listener("uds"), `echo.test:${ECHO_PORT}`).catch(() => false);
    await waitFor(isServed, { what: "a CONNECT that is served", deadlineMs: 30_000 });
  } catch (error) {
    await stop();
    throw error;
  }
  return { site, agent, [Symbol.asyncDispose]: stop };
}

describe("names", { skip, concurrency: 1 }, () => {
  test("names without an answer hold up no CONNECT, and no agent that is cut meanwhile", async () => {
    await using network = await NamesNetwork.create();
    await using world = await startSite(network);
    const listener = world.site.listener("uds");
    await using open = await connectThrough(listener, `echo.test:${ECHO_PORT}`);
    let answered = 0;
    const silent = Array.from({ length: 8 }, async (_, i) => {
      const asked = connectThrough(listener, `silent-${i}.test:1`, { deadlineMs: 60_000 });
      const status = await asked.then((answer) => answer.status, String);
      answered++;
      return status;
    });
    for (let i = 0; i < silent.length; i++) await network.asked(`silent-${i}.test`);
    await using beside = await connectThrough(listener, `echo.test:${ECHO_PORT}`);
    assert.deepEqual([beside.status, answered], [200, 0]);
    const services = Array.from({ length: 30 }, (_, i) => isAnswered(listener, `service-${i}.blue:${ECHO_PORT}`));
    assert.ok((await Promise.all(services)).every(Boolean));

    const restore = await network.cut(AGENTS);
    await open.send("a");
    await world.agent.waitForLog("uplink suspended");
    await restore();
    assert.equal(await open.read(GRACE_MS), "a");
    assert.deepEqual([...new Set(await Promise.all(silent))], [504]);
  });

  test("servers whose names do not resolve hold up no other server", async () => {
    await using network = await NamesNetwork.create();
    await using _world = await startSite(network, ["wss://silent-a.test:1", "wss://silent-b.test:1"]);
    await network.asked("silent-a.test");
    await network.asked("silent-b.test");
  });

  test("backends of a route whose names do not resolve hold up no other route of a router", async () => {
    await using network = await NamesNetwork.create();
    using site = new Site({ callers: CALLERS, agents: AGENTS, health: HEALTH });
    const routes = site.dir.file("routes.yaml");
    const silent = ["silent-a.test:1", "silent-b.test:1", "silent-c.test:1", "silent-d.test:1"];
    const blue = `sni: [blue.example]\nto: [echo.test:${ECHO_PORT}]\n`;
    writeFileSync(routes, `${blue}---\nsni: [dead.example]\nto: ${JSON.stringify(silent)}\n`);
    const ports = { port: ROUTER, healthPort: HEALTH, adminPort: 0, bindAddress: "127.0.0.1" };
    await using router = network.start(["router", ...flags({ routes, ...ports })]);
    await router.waitForLog("router started");
    const dead = Array.from({ length: 4 }, () => client(network, "dead.example"));
    for (const target of silent.slice(0, 4)) await network.asked(target.replace(":1", ""));
    await using blueClient = client(network, "blue.example");
    assert.equal(await blueClient.exited, "exit code 0");
    await Promise.all(dead.map((each) => each.kill()));
  });
});

/** Ends with exit code 0 when the backend has echoed the hello of a client. */
function client({ inside }: NamesNetwork, name: string): Program {
  const script = `
    const socket = require("node:net").connect(${ROUTER}, "127.0.0.1");
    socket.write(Buffer.from("${helloFor(name).toString("hex")}", "hex"));
    socket.on("data", () => process.exit(0)).on("error", () => process.exit(1)).on("close", () => process.exit(1));`;
  return inside.start("client", [process.execPath, "-e", script]);
}
