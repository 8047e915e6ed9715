import assert from "node:assert/strict";
import { once } from "node:events";
import { connect, type Socket } from "node:net";
import { type TestContext, test } from "node:test";
import type { AgentOptions } from "../../agent/context/options.ts";
import type { ServerOptions } from "../../server/options/options.ts";
import { startClusterAgent } from "../harness/cluster-agents.ts";
import { ClusterFolder } from "../harness/cluster-files.ts";
import { startClusterServer } from "../harness/cluster-server.ts";
import { startRelay } from "../harness/faults.ts";
import { captureLog, type LogLine } from "../harness/log-lines.ts";
import { Payload } from "../harness/payload.ts";
import { scrapeRegistry } from "../harness/scrape.ts";
import { freePort } from "../harness/targets/absent.ts";
import { sendPayload } from "../harness/targets/plain.ts";
import { TARGETS } from "../harness/targets.ts";
import { waitFor, within } from "../harness/wait.ts";
import { startWorld } from "../harness/world.ts";

const SOON_MS = 15_000;

/** A program of the node dials this port. */
async function dial(t: TestContext, port: number): Promise<Socket> {
  const socket = connect({ host: "127.0.0.1", port, allowHalfOpen: true });
  t.after(() => void socket.destroy());
  socket.on("error", () => {});
  await once(socket, "connect");
  return socket;
}

async function echoes(socket: Socket, text: string): Promise<void> {
  socket.write(text);
  let read = "";
  while (read.length < text.length) read += String((await within(once(socket, "data"), SOON_MS, text))[0]);
  assert.equal(read, text);
}

/** How a connection of the node ends that brings no byte. */
function endOf(socket: Socket): Promise<string> {
  socket.resume();
  return within(
    new Promise((resolve) => {
      socket.on("error", (error: NodeJS.ErrnoException) => resolve(error.code ?? error.message));
      socket.on("end", () => resolve("fin"));
      socket.on("data", () => resolve("data"));
    }),
    SOON_MS,
    "the end",
  );
}

/** The options of an agent whose ports lead to these destinations. */
async function portsTo(...destinations: readonly string[]) {
  const ports = await Promise.all(destinations.map(() => freePort()));
  const target = destinations.map((destination, index) => `${ports[index]}:${destination}`);
  const options: Partial<AgentOptions> = { bindAddress: "127.0.0.1", target };
  return { options, ports: ports as [number, ...number[]] };
}

const lineOf = (lines: readonly LogLine[], msg: string) =>
  waitFor(() => lines.find((line) => line.msg === msg), { what: `a line "${msg}"` });

test("a program of the node reaches its control plane through the tunnel, while callers go the other way", async (t) => {
  await using kas = await TARGETS.echo();
  const { options, ports } = await portsTo(kas.address);
  await using world = await startWorld({
    targets: ["echo"],
    server: { allowedDestination: [kas.address] },
    agent: options,
  });
  const node = await dial(t, ports[0]);
  await using caller = await world.connect("echo");
  await echoes(node, "from the node");
  await caller.send("to the node");
  assert.equal(String(await caller.readBytes(11)), "to the node");
  node.end("the last words");
  let text = "";
  for await (const chunk of node) text += String(chunk);
  assert.equal(text, "the last words");
});

test("a connection of the node goes on over the agent's next connection, at the exact byte", async (t) => {
  await using kas = await TARGETS.echo();
  const { options, ports } = await portsTo(kas.address);
  await using world = await startWorld({
    server: { allowedDestination: [kas.address] },
    agent: options,
    relay: true,
  });
  const node = await dial(t, ports[0]);
  for (const text of ["one", "two", "three"]) {
    await echoes(node, text);
    world.relay.cut("rst");
  }
  await echoes(node, "four");
});

for (const [what, allowed] of [
  ["that is not listed", ["kas.internal:6443"]],
  ["of a server without a list", []],
] as const) {
  test(`a destination ${what} is reset at the node, logged and counted at both ends`, async (t) => {
    await using kas = await TARGETS.echo();
    const { log, lines } = captureLog();
    const { options, ports } = await portsTo(kas.address);
    await using world = await startWorld({ server: { allowedDestination: [...allowed] }, agent: options, log });
    assert.equal(await endOf(await dial(t, ports[0])), "ECONNRESET");
    const refused = await lineOf(lines, "destination refused to an agent");
    assert.deepEqual([refused["outcome"], refused["destination"]], ["forbidden", kas.address]);
    const reset = await lineOf(lines, "connection of the node was reset");
    assert.match(String(reset["reason"]), /is not among the allowed destinations of the cluster/);
    const outcome = { outcome: "forbidden" };
    const server = await scrapeRegistry(world.server.metrics.registry);
    assert.equal(server.value("culvert_server_destination_connections_total", { cluster: "default", ...outcome }), 1);
    const agent = await scrapeRegistry(world.agents[0]?.metrics.registry ?? assert.fail());
    assert.equal(agent.value("culvert_agent_destination_connections_total", outcome), 1);
  });
}

test("a server that is away costs a retry on another one", async (t) => {
  await using kas = await TARGETS.echo();
  const { options, ports } = await portsTo(kas.address);
  const allowedDestination = [kas.address];
  await using world = await startWorld({ agents: 0, server: { allowedDestination } });
  const first = world.server;
  t.after(() => first.destroy(new Error("the test is over")));
  await using away = await startRelay({ host: "127.0.0.1", port: first.addresses.agents?.port ?? 0 });
  const second = await world.startServer({ serverId: "b", udsName: world.dir.file("b"), allowedDestination });
  const urls = [away.port, second.addresses.agents?.port].map((port) => `wss://127.0.0.1:${port}`);
  await world.startAgent({ server: urls, proxyServerHost: "", ...options });
  away.drop();
  // Both servers are as idle as each other at first, so one of these would have gone to the silent one.
  const nodes = await Promise.all([1, 2, 3].map(() => dial(t, ports[0])));
  await Promise.all(nodes.map((node, index) => echoes(node, `connection ${index}`)));
});

test("an agent reaches neither another cluster's destination nor a port of the server, although that is listed", async (t) => {
  await using ofBlue = await TARGETS.echo();
  await using ofGreen = await TARGETS.echo();
  using folder = await ClusterFolder.create(["blue", "green"]);
  const [blue, green] = [folder.get("blue"), folder.get("green")];
  const own: Partial<ServerOptions> = {
    ...{ adminPort: await freePort(), healthPort: await freePort(), healthBindAddress: "127.0.0.1" },
    ...{ agentPort: await freePort(), serverPort: await freePort(), httpPort: await freePort() },
  };
  const ofServer = [own.adminPort, own.healthPort, own.agentPort, own.serverPort, own.httpPort];
  const listed = ofServer.flatMap((port) => [`127.0.0.1:${port}`, `localhost:${port}`]);
  await blue.write({ allowedDestinations: [ofBlue.address] });
  await green.write({ allowedDestinations: [ofGreen.address, ...listed] });
  using world = await startClusterServer(folder, own);
  const wanted = [ofGreen.address, ofBlue.address, ...listed, "169.254.169.254:80", "metadata.google.internal:80"];
  const { options, ports } = await portsTo(...wanted);
  const agent = await startClusterAgent(green, world.agentPort, options);
  t.after(() => agent.destroy(new Error("the test is over")));
  const [allowed, ...refused] = ports;
  await echoes(await dial(t, allowed), "green");
  for (const [index, port] of refused.entries()) {
    assert.equal(await endOf(await dial(t, port)), "ECONNRESET", wanted[index + 1]);
  }
  assert.deepEqual([...ofBlue.sockets()], []);
});

const BULK = 60_000_000;

test("a download of the node and an upload of a caller share the link, and neither holds the other up", async (t) => {
  await using kas = await TARGETS.source();
  const { options, ports } = await portsTo(kas.address);
  await using world = await startWorld({
    targets: ["sink", "echo"],
    server: { allowedDestination: [kas.address] },
    agent: options,
  });
  await using caller = await world.connect("sink");
  sendPayload(caller.socket, new Payload(), Number.POSITIVE_INFINITY);
  const node = await dial(t, ports[0]);
  let downloaded = 0;
  node.on("data", (chunk: Buffer) => {
    downloaded += chunk.length;
  });
  await waitFor(() => downloaded > 0 && world.targets.sink.bytes > 0, { what: "bytes of both" });
  const [nodeBefore, callerBefore] = [downloaded, world.targets.sink.bytes];
  const moved = () => [downloaded - nodeBefore, world.targets.sink.bytes - callerBefore] as const;
  await waitFor(() => moved()[0] + moved()[1] > BULK, { deadlineMs: 60_000, what: `${BULK} bytes` });
  const [ofNode, ofCaller] = moved();
  assert.ok(Math.min(ofNode, ofCaller) > BULK / 6, `${ofNode} bytes of the node, ${ofCaller} of the caller`);
  node.pause(); // a reader that stops
  await using beside = await world.connect("echo");
  await beside.send("x");
  assert.equal(String(await beside.readBytes(1)), "x");
});
