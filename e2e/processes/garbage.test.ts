import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { connect, type Socket } from "node:net";
import { test } from "node:test";
import { createSite, type Site } from "../harness/binaries.ts";
import { connectThrough, dialListener, established } from "../harness/caller.ts";
import { runConcurrently } from "../harness/concurrently.ts";
import { IN_CI, ON_CI } from "../harness/counts.ts";
import type { ManagedProcess } from "../harness/processes.ts";
import { scrapePort } from "../harness/scrape.ts";
import { SteadyCaller } from "../harness/steady-caller.ts";
import { freePort } from "../harness/targets/absent.ts";
import { TARGETS } from "../harness/targets.ts";
import { waitFor, within } from "../harness/wait.ts";

/** Bytes that belong on no port. */
const GARBAGE: Readonly<Record<string, Buffer>> = {
  "random bytes": randomBytes(4_096),
  "a megabyte of zeros": Buffer.alloc(1_048_576),
  "a line without end": Buffer.alloc(300_000, "A"),
  "a header without end": Buffer.from(`GET / HTTP/1.1\r\n${"X-Y: z\r\n".repeat(40_000)}`),
  "another protocol (SSH)": Buffer.from("SSH-2.0-OpenSSH_9.6\r\n"),
  "HTTP/2 that does not begin with SETTINGS": Buffer.from("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\0\0\0\0\0\0"),
  "a TLS record that lies about its length": Buffer.concat([Buffer.from("160301ffff01", "hex"), randomBytes(100)]),
  "two requests that disagree on their length": Buffer.from(
    "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /x HTTP/1.1\r\n\r\n",
  ),
  "control bytes in a CONNECT": Buffer.from("CONNECT a\0b:1 HTTP/1.1\r\nHost: \x7f\r\n\r\n"),
};

/**
 * The counters of connections that say nothing and make room for others, and through how many ports they come. Which of
 * the callers' have their TLS handshake behind them depends on the speed of the machine.
 */
const DROPPED = [
  ["callers", 2, ["culvert_server_handshakes_failed_total", "culvert_server_waiting_connections_dropped_total"]],
  ["agents", 1, ["culvert_server_handshakes_failed_total"]],
  ["unix", 1, ["culvert_server_waiting_connections_dropped_total"]],
] as const;

const ROUNDS = ON_CI ? 20 : 2;
/** Memory that a process may keep: a few MiB of heap that has grown, not the garbage itself (20 × 9 × 1 MB). */
const RSS_GROWTH = 64 * 1024 * 1024;

test("garbage on every port of both processes: all of it is cut, nobody else notices, nothing is kept", async () => {
  await using echo = await TARGETS.echo();
  using site = await createSite();
  const ports = await freePorts(["serverAdmin", "agentHealth", "agentAdmin"]);
  await using server = await site.startServer({
    ...{ adminPort: ports.serverAdmin, handshakeTimeout: "1s", headerTimeout: "1s", helloTimeout: "1s" },
  });
  const agentPorts = { healthServerPort: ports.agentHealth, adminServerPort: ports.agentAdmin };
  await using agent = await site.startAgent({ ...agentPorts, healthServerHost: "127.0.0.1" }, { wait: false });
  await agent.waitForHealth(`http://127.0.0.1:${ports.agentHealth}/readyz`);
  await using steadyCaller = new SteadyCaller(await connectThrough(site.listener("tls"), echo.address));

  const listeners = listenersOf(site, ports);
  const throwAll = async (rounds: number) => {
    const throws = Object.values(listeners).flatMap((dial) => Object.values(GARBAGE).map((bytes) => ({ dial, bytes })));
    await runConcurrently(rounds * throws.length, 16, async (index) => {
      const { dial, bytes } = throws[index % throws.length] as (typeof throws)[number];
      await thrown(dial(), bytes);
    });
  };
  await throwAll(1); // loads what is loaded once
  const before = {
    server: server.rssBytes(),
    agent: agent.rssBytes(),
    serverFds: server.fdCount(),
    agentFds: agent.fdCount(),
  };
  await throwAll(ROUNDS);

  await steadyCaller.assertUnharmed();
  await using _after = await established(connectThrough(site.listener("uds"), echo.address));
  for (const process of [server, agent]) assertCalm(process);
  assert.ok(server.rssBytes() - before.server < RSS_GROWTH, `server: +${server.rssBytes() - before.server} bytes`);
  assert.ok(agent.rssBytes() - before.agent < RSS_GROWTH, `agent: +${agent.rssBytes() - before.agent} bytes`);
  await waitFor(() => server.fdCount() <= before.serverFds + 4 && agent.fdCount() <= before.agentFds + 4);
  for (const port of [site.healthPort, ports.serverAdmin, ports.agentHealth, ports.agentAdmin]) {
    assert.equal((await fetch(`http://127.0.0.1:${port}/metrics`)).status, 200);
  }
});

test("a flood of connections that say nothing costs the server its bounds, not its descriptors or its log", async () => {
  await using echo = await TARGETS.echo();
  using site = await createSite();
  const most = 20;
  await using server = await site.startServer({ maxHandshakes: most, maxWaitingConnections: most });
  await using _agent = await site.startAgent();
  await using steadyCaller = new SteadyCaller(await connectThrough(site.listener("tls"), echo.address));
  const listeners = Object.values(serverListeners(site));
  const before = server.fdCount();
  const silent: Socket[] = [];
  try {
    for (let round = 0; round < 10; round++) {
      for (const dial of listeners) silent.push(...Array.from({ length: most }, dial));
      for (const socket of silent) socket.on("error", () => {}).resume();
      await using _next = await established(connectThrough(site.listener("uds"), echo.address));
      const bound = before + listeners.length * most + 40;
      await waitFor(() => server.fdCount() < bound, { what: `fewer than ${bound} descriptors, from ${before}` });
    }
    await steadyCaller.assertUnharmed();
    const held = () => silent.filter(({ closed, readableEnded }) => !closed && !readableEnded).length;
    await waitFor(() => held() <= listeners.length * most);
    assertCalm(server);
    assert.ok(server.log.length < 100, `${server.log.length} lines`);
    const scrape = await scrapePort(site.healthPort);
    for (const [listener, ways, counters] of DROPPED) {
      let dropped = 0;
      for (const counter of counters) dropped += scrape.value(counter, { listener });
      // Each listener had ten times as many as it keeps.
      assert.ok(dropped >= 8 * most * ways, `${dropped} of ${listener}`);
    }
  } finally {
    for (const socket of silent) socket.destroy();
  }
});

test("health and admin ports cut who says nothing, or drips, in about 10 s", IN_CI, async () => {
  using site = await createSite();
  const ports = await freePorts(["serverAdmin"]);
  await using _server = await site.startServer({ adminPort: ports.serverAdmin });
  const dial = () => [site.healthPort, ports.serverAdmin].map((port) => connect({ port, host: "127.0.0.1" }));
  const [silent, dripping] = [dial(), dial()];
  for (const socket of dripping) socket.write("GET / HTTP/1.1\r\nX: ");
  const timer = setInterval(() => {
    for (const socket of dripping) if (socket.writable) socket.write("x");
  }, 500);
  const startedAt = performance.now();
  const all = [...silent, ...dripping];
  try {
    await Promise.all(all.map((socket) => within(cut(socket), 60_000, "all of them to be cut")));
  } finally {
    clearInterval(timer);
    for (const socket of all) socket.destroy();
  }
  const cutMs = performance.now() - startedAt;
  assert.ok(cutMs > 8_000, `${cutMs} ms`);
});

test("an admin port answers its own paths only, and no method that changes anything", async () => {
  using site = await createSite();
  const ports = await freePorts(["serverAdmin"]);
  await using _server = await site.startServer({ adminPort: ports.serverAdmin });
  for (const [path, method, status] of [
    ["/status", "GET", 200],
    ["/metrics", "GET", 200],
    ["/", "GET", 404],
    ["/../../etc/passwd", "GET", 404],
    ["/status", "POST", 405],
    ["/status", "DELETE", 405],
  ] as const) {
    const answer = await fetch(`http://127.0.0.1:${ports.serverAdmin}${path}`, { method });
    assert.equal(answer.status, status, `${method} ${path}`);
  }
});

// ── helpers ──────────────────────────────────────────────────────────────────────────────────────────────────────

type Listeners = Readonly<Record<string, () => Socket>>;

function tcp(port: number | undefined): () => Socket {
  return () => connect({ port: port ?? 0, host: "127.0.0.1" });
}

function serverListeners(site: Site): Listeners {
  return {
    "callers, before TLS": tcp(site.callerPort),
    "callers, inside TLS": () => dialListener(site.listener("tls")),
    "callers, unix socket": () => dialListener(site.listener("uds")),
    "agents, before TLS": tcp(site.agentPort),
  };
}

function listenersOf(site: Site, ports: Readonly<Record<string, number>>): Listeners {
  return {
    ...serverListeners(site),
    "the server's health": tcp(site.healthPort),
    "the server's admin": tcp(ports["serverAdmin"]),
    "the agent's health": tcp(ports["agentHealth"]),
    "the agent's admin": tcp(ports["agentAdmin"]),
  };
}

/** Throws the bytes, hears what there is to hear, and leaves when the other side is silent or has cut. */
async function thrown(socket: Socket, bytes: Buffer): Promise<void> {
  const over = cut(socket);
  socket.write(bytes);
  try {
    await within(over, 30_000, "the garbage to be cut");
  } finally {
    socket.destroy();
  }
}

function cut(socket: Socket): Promise<void> {
  return new Promise((resolve) => {
    socket.on("error", () => resolve());
    socket.on("end", () => resolve());
    socket.on("close", () => resolve());
    socket.resume();
  });
}

/** Unauthenticated peers are no errors, and no stack of ours is logged for them. */
function assertCalm(process: ManagedProcess): void {
  assert.equal(process.running, true);
  const upset = process.log.filter((line) => /"level":"(error|fatal)"|^\s+at /.test(line));
  assert.deepEqual(upset, []);
}

async function freePorts<const Name extends string>(names: readonly Name[]): Promise<Readonly<Record<Name, number>>> {
  const entries = await Promise.all(names.map(async (name) => [name, await freePort()] as const));
  return Object.fromEntries(entries) as Record<Name, number>;
}
