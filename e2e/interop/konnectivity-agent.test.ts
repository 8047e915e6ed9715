import assert from "node:assert/strict";
import { once } from "node:events";
import { writeFile } from "node:fs/promises";
import { type AddressInfo, connect, createServer } from "node:net";
import { join } from "node:path";
import { after, test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { OpenCaller, Tenants, unixCallerAt } from "../../server/testing/tenants.ts";
import { ISSUER, Issuer, SUBJECT } from "../../server/tokens/testing/tokens.ts";
import { Authority } from "../../shared/pki/certificates.ts";
import { connectThrough } from "../harness/caller.ts";
import { certificateFlags, KonnectivityAgent } from "../harness/konnectivity-agent.ts";
import { captureLog, type LogLine } from "../harness/log-lines.ts";
import { startSlowLine } from "../harness/slow-line.ts";
import { echoTarget } from "../harness/targets/plain.ts";
import { waitFor } from "../harness/wait.ts";
import { startWorld, type World } from "../harness/world.ts";
import { goMissing } from "./go-peer.ts";

const skip = goMissing;
const { log, lines } = captureLog();
const world = await startWorld({ log, agents: 0, targets: ["echo", "source"], server: { agentWaitMs: 15_000 } });
after(() => world[Symbol.asyncDispose]());

const folder = world.dir.path;

async function agentOf(port: number, ...flags: string[]): Promise<KonnectivityAgent> {
  return await KonnectivityAgent.start(folder, { port, flags: [...certificateFlags(folder), ...flags] });
}

function portOf({ server }: Pick<World, "server">): number {
  return server.addresses.agents?.port ?? 0;
}

/** Lines with this message after the first `from` ones. */
function logged(message: string, from = 0): LogLine[] {
  return lines.slice(from).filter(({ msg }) => msg === message);
}

test("by certificate: small and large bytes both ways, errors of the dial, and its end", { skip }, async () => {
  const from = lines.length;
  using agent = await agentOf(portOf(world), "--agent-id=by-certificate", "--agent-identifiers=host=a.example");
  await waitFor(() => logged("tunnel opened", from)[0]);
  await using connection = await world.connect("echo");
  assert.equal(connection.status, 200);
  await connection.send("hello");
  assert.equal(await connection.read(), "hello");
  const bulk = Buffer.alloc(32 * 1024 * 1024, "0123456789");
  void connection.send(bulk);
  assert.ok((await connection.readBytes(bulk.length)).equals(bulk));
  const refused = await world.connect("127.0.0.1:1");
  assert.equal(refused.status, 502);
  assert.match(refused.reason, /connection refused/);
  const named = await world.connect("nowhere.invalid:80");
  assert.equal(named.status, 502);
  await agent.stop("SIGKILL");
  assert.equal(await connection.read(), "");
  await waitFor(() => logged("tunnel lost", from)[0]);
});

test("an agent that is not let in has the server's sentence in its log", {
  skip,
}, async () => {
  const from = lines.length;
  const pair = await (await Authority.create("other")).issue({ cn: "agent", usage: "client" });
  const file = async (name: string, text: string) => {
    await writeFile(join(folder, name), text);
    return join(folder, name);
  };
  const ofAnotherCa = [
    `--agent-cert=${await file("o.crt", pair.cert)}`,
    `--agent-key=${await file("o.key", pair.key)}`,
  ];
  for (const flags of [[], ofAnotherCa]) {
    using stranger = await KonnectivityAgent.start(folder, { port: portOf(world), flags });
    const accepted =
      /got \[refused no client certificate that is accepted came: --agent-cert must be signed by \\?"cn=/;
    await waitFor(() => stranger.lines.find((line) => accepted.test(line)));
  }
  assert.equal(logged("agent refused", from)[0]?.["code"], 401);
});

test("one that dials a server without --konnectivity-agents has the sentence in its log", { skip }, async () => {
  await using place = await startWorld({ agents: 0, targets: [], server: { konnectivityAgents: false } });
  using agent = await KonnectivityAgent.start(place.dir.path, {
    port: portOf(place),
    flags: certificateFlags(place.dir.path),
  });
  await waitFor(() => agent.lines.find((line) => /got \[refused cluster .*takes culvert agents only/.test(line)));
});

test("with --sync-forever it finds the same server again every second, and nothing is refused", { skip }, async () => {
  const from = lines.length;
  using agent = await agentOf(portOf(world), "--agent-id=for-ever", "--sync-forever", "--sync-interval=100ms");
  await waitFor(() => logged("tunnel opened", from)[0]);
  await using connection = await world.connect("echo");
  await waitFor(() => agent.lines.filter((line) => /duplicate server/.test(line)).length >= 5);
  await connection.send("still here");
  assert.equal(await connection.read(), "still here");
  assert.deepEqual([logged("agent refused", from).length, logged("tunnel opened", from).length], [0, 1]);
});

test("on a line of 100 kB/s that is full both ways it does not stand still, and each dial is answered", {
  skip,
}, async () => {
  await using place = await startWorld({
    ...{ log, agents: 0, targets: ["echo", "source", "sink"] },
    server: { agentWaitMs: 15_000, connectTimeoutMs: 60_000 },
  });
  const line = { bytesPerSecond: 100_000, queueBytes: 64 * 1024, rttMs: 100 };
  await using slow = await startSlowLine({ host: "127.0.0.1", port: portOf(place) }, line);
  using agent = await KonnectivityAgent.start(place.dir.path, {
    port: slow.port,
    flags: certificateFlags(place.dir.path),
  });
  assert.ok(agent);
  await using upload = await place.connect("sink");
  const filling = setInterval(() => upload.socket.writableNeedDrain || upload.socket.write(Buffer.alloc(65_536)), 1);
  await using download = await place.connect("source");
  download.socket.resume();
  const [tunnel] = place.server.tunnels.tunnels();
  let stood = 0;
  const watching = setInterval(() => {
    if (tunnel?.standsStill === true) stood++;
  }, 100);
  try {
    for (const endsAt = performance.now() + 15_000; performance.now() < endsAt; ) {
      await using connection = await place.connect("echo");
      assert.equal(connection.status, 200);
    }
  } finally {
    clearInterval(filling);
    clearInterval(watching);
  }
  assert.equal(stood, 0);
});

test("two servers behind one address: it looks for --server-count of them, and each carries callers", {
  skip,
}, async () => {
  const from = lines.length;
  await using both = await startWorld({ log, agents: 0, targets: ["echo"], server: { serverCount: 2 } });
  const first = both.server;
  await using second = await both.startServer({ serverId: "second", udsName: both.dir.file("s2") });
  const ports = [first, second].map(({ addresses }) => addresses.agents?.port ?? 0);
  using balancer = await roundRobin(ports);
  using agent = await KonnectivityAgent.start(both.dir.path, {
    port: balancer.port,
    flags: [...certificateFlags(both.dir.path), "--agent-id=both", "--sync-interval=100ms"],
  });
  await waitFor(() => logged("tunnel opened", from).length === 2);
  for (const { addresses } of [first, second]) {
    await using connection = await connectThrough({ path: addresses.uds ?? "" }, both.targets.echo.address);
    await connection.send("hello");
    assert.equal(await connection.read(), "hello");
  }
  assert.ok(agent);
  first.destroy(new Error("the test is over"));
});

test("a server that is replaced has the agent back within 10 s, which its own intervals allow", { skip }, async () => {
  await using place = await startWorld({ log, agents: 0, targets: ["echo"], server: { agentWaitMs: 15_000 } });
  const port = portOf(place);
  using agent = await KonnectivityAgent.start(place.dir.path, { port, flags: certificateFlags(place.dir.path) });
  assert.ok(agent);
  await place.connect("echo").then((connection) => connection.socket.destroy());
  await place.server.close();
  const stoppedAt = performance.now();
  await sleep(1_000);
  const from = lines.length;
  await place.startServer({ agentPort: port });
  await waitFor(() => logged("tunnel opened", from)[0]);
  assert.ok(performance.now() - stoppedAt < 10_000);
  await using connection = await place.connect("echo");
  assert.equal(connection.status, 200);
});

test("by token: it is let in without a certificate", { skip }, async () => {
  await using tenants = await Tenants.create(["blue"]);
  const issuer = await Issuer.create();
  const blue = tenants.get("blue");
  await writeFile(join(tenants.folder, "blue.jwks"), JSON.stringify(await issuer.keySet()));
  const jwt = { issuer: ISSUER, audience: "culvert", jwks: "blue.jwks", subjects: [SUBJECT] };
  await blue.write({ agents: { sni: [], token: { jwt }, identities: [], konnectivity: true }, callers: { sni: [] } });
  const server = await tenants.start({ agentWaitMs: 15_000 });
  const tokenFile = join(tenants.folder, "token");
  await writeFile(tokenFile, await issuer.token());
  await using echo = await echoTarget();
  using agent = await KonnectivityAgent.start(tenants.folder, {
    port: server.addresses.agents?.port ?? 0,
    flags: [`--service-account-token-path=${tokenFile}`, `--ca-cert=${join(tenants.folder, "blue.ca")}`],
  });
  assert.ok(agent);
  const caller = await OpenCaller.open(await unixCallerAt(blue.uds), "", echo.address);
  assert.ok(caller);
  const opened = server.lines.find(({ msg }) => msg === "tunnel opened");
  assert.deepEqual([opened?.["identity"], opened?.["protocol"]], [`SUB=${SUBJECT}`, "konnectivity"]);
});

/** A balancer that leads to these ports in turn. */
async function roundRobin(ports: readonly number[]) {
  let next = 0;
  const server = createServer((near) => {
    const far = connect({ host: "127.0.0.1", port: ports[next++ % ports.length] ?? 0 });
    for (const [one, other] of [
      [near, far],
      [far, near],
    ] as const) {
      one.on("error", () => {}).on("close", () => other.destroy());
      one.pipe(other);
    }
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  return {
    port: (server.address() as AddressInfo).port,
    [Symbol.dispose]: () => void server.close(),
  };
}
