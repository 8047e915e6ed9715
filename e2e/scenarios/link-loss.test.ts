import assert from "node:assert/strict";
import { test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { type Connection, established } from "../harness/caller.ts";
import { Exchange, exchangeTarget } from "../harness/exchange.ts";
import { heldMemory } from "../harness/held-memory.ts";
import { captureLog } from "../harness/log-lines.ts";
import { peerEnd } from "../harness/peer-end.ts";
import { fdCount } from "../harness/proc.ts";
import { scrapeRegistry } from "../harness/scrape.ts";
import { waitFor, within } from "../harness/wait.ts";
import { startWorld, type World } from "../harness/world.ts";

const KEEPALIVE_MS = 200;
/** From the first lost byte to the moment when an end knows: pings are looked for eight times in an interval. */
const NOTICED_MS = KEEPALIVE_MS * (2.5 + 1 / 8);
/** Time by which an end may come late. */
const LATE_MS = 10_000;

const LIVELY = { maxBytes: 20_000, maxPauseMs: 20 };
const SILENT = { maxBytes: 0, maxPauseMs: 0 };

// ── silence ──────────────────────────────────────────────────────────────────────────────────────────────────────

/** Several attempts to resume end in it, and the grace (30 s) does not. */
const SILENCE_MS = 5_000;

test(`a path that drops everything for ${SILENCE_MS / 1000} s, inside the grace: streams go on where they were`, async () => {
  await using world = await startWorld({
    relay: true,
    server: { keepaliveMs: KEEPALIVE_MS },
    agent: { keepaliveMs: KEEPALIVE_MS, handshakeTimeoutMs: 1_000 },
  });
  await using target = await exchangeTarget();
  const exchanges: Exchange[] = [];
  for (const [i, pace] of [LIVELY, SILENT, LIVELY, SILENT].entries()) {
    const connection = await established(world.connect(target.address, { via: i < 2 ? "uds" : "tls" }));
    exchanges.push(new Exchange(`exchange ${i}`, connection, target, i, pace));
  }
  await waitFor(() => exchanges[0]?.received.up && exchanges[2]?.received.down);
  world.relay.drop();
  await sleep(SILENCE_MS);
  const stuck = exchanges.map((exchange) => exchange.received);
  world.relay.restore();
  await waitFor(() => (exchanges[0]?.received.up ?? 0) > (stuck[0]?.up ?? 0), {
    what: "bytes behind the silence",
    deadlineMs: 30_000,
  });
  await Promise.all(exchanges.map((exchange) => exchange.finish()));
});

const GRACE_MS = 2_000;
/** Of each caller, into the dead path: more than a link takes, so that it holds what it can. */
const STUCK_BYTES = 256 * 1024;
const KEPT_BYTES = 128 * 1024;
/** Compiled code, mostly: bytes of callers are in buffers, none of which may be left. */
const SPARE_HEAP_BYTES = 8 * 1024 * 1024;

/** Bytes that all tunnels hold, by the pools of both ends. */
async function poolsHold(world: World<"echo">): Promise<{ readonly server: number; readonly agent: number }> {
  const [atServer, atAgent] = await Promise.all(
    [world.server, world.agents[0]].map((end) => end && scrapeRegistry(end.metrics.registry)),
  );
  const held = (scrape: typeof atServer, side: string) =>
    scrape?.sum(`culvert_${side}_memory_held_bytes`, {}) ?? Number.NaN;
  return { server: held(atServer, "server"), agent: held(atAgent, "agent") };
}

test("silence beyond the grace ends every stream at each end in its time, as agent_lost, and leaves nothing behind", async (context) => {
  const { log, lines } = captureLog();
  await using world = await startWorld({
    ...{ relay: true, targets: ["echo"], log },
    server: { keepaliveMs: KEEPALIVE_MS, linkGraceMs: GRACE_MS },
    agent: { keepaliveMs: KEEPALIVE_MS, handshakeTimeoutMs: 1_000 },
  });
  const { echo } = world.targets;
  await established(world.connect("echo")).then(({ socket }) => socket.destroy()); // what is opened once stays open
  await waitFor(() => echo.open === 0);
  const fdsBefore = fdCount(process.pid);
  const memoryBefore = heldMemory();

  const callers: Connection[] = [];
  for (let i = 0; i < 20; i++)
    callers.push(await established(world.connect("echo", { via: i % 2 === 0 ? "uds" : "tls" })));
  world.relay.drop();
  const droppedAt = performance.now();
  for (const { socket } of callers) socket.write(Buffer.alloc(STUCK_BYTES));
  await waitFor(async () => (await poolsHold(world)).server >= KEPT_BYTES, { what: "stuck bytes" });
  context.diagnostic(`held ${JSON.stringify(await poolsHold(world))} bytes`);
  const sinceDrop = <T>(ended: Promise<T>) => ended.then(() => performance.now() - droppedAt);
  const atServer = callers.map(({ socket }) => sinceDrop(peerEnd(socket.resume())));
  const atAgent = [...echo.sockets()].map((socket) => sinceDrop(peerEnd(socket)));
  assert.equal(atAgent.length, callers.length);
  const all = await within(Promise.all([...atServer, ...atAgent]), 30_000, "the end of every stream at each end");
  const [first, last] = [Math.min(...all), Math.max(...all)];
  context.diagnostic(`ended between ${Math.round(first)} and ${Math.round(last)} ms after the path died`);
  assert.ok(first >= GRACE_MS, `${first} ms: before the grace was over`);
  assert.ok(last <= NOTICED_MS + GRACE_MS + LATE_MS, `${last} ms`);
  const closed = () => lines.filter(({ msg }) => msg === "connection closed").slice(1);
  await waitFor(() => closed().length === callers.length, { what: "a line of each connection" });
  assert.deepEqual([...new Set(closed().map(({ outcome }) => outcome))], ["agent_lost"]);

  for (const { socket } of callers) socket.destroy();
  world.relay.restore();
  world.relay.cut("rst"); // attempts that were made in the dark
  await waitFor(() => world.agents[0]?.connected, { what: "the agent to be back", deadlineMs: 15_000 });
  await waitFor(() => fdCount(process.pid) <= fdsBefore, {
    what: `descriptors at their base of ${fdsBefore}`,
    deadlineMs: 10_000,
  });
  await waitFor(
    async () => {
      const { server, agent } = await poolsHold(world);
      return server === 0 && agent === 0;
    },
    { what: "pools that hold nothing" },
  );
  callers.length = 0;
  const grown = () => {
    const { heap, buffers } = heldMemory();
    return { heap: heap - memoryBefore.heap, buffers: buffers - memoryBefore.buffers };
  };
  await waitFor(() => grown().buffers < KEPT_BYTES && grown().heap < SPARE_HEAP_BYTES, {
    ...{ what: `memory at its base, not ${JSON.stringify(grown())} more`, everyMs: 200, deadlineMs: 10_000 },
  });
  context.diagnostic(`memory grew by ${JSON.stringify(grown())} bytes`);
  const again = await established(world.connect("echo"));
  again.socket.destroy();
});

// ── what is new while a link is suspended ────────────────────────────────────────────────────────────────────────

/** Unplugs the path of one agent; resolves when the server knows. */
async function suspend(world: World<"echo">, index = 0): Promise<void> {
  await world.relays[index]?.unplug();
  await waitFor(() => [...world.server.tunnels.tunnels()].some((tunnel) => tunnel.suspended), {
    what: "a suspended tunnel",
  });
}

/**
 * A stream that is opened over a suspended link is given up after this time, ms; one that never was is answered far
 * sooner.
 */
const ACK_MS = 6_000;

test("while the link of one agent is suspended, CONNECTs use another at once, and its own streams wait for it", async () => {
  await using world = await startWorld({
    ...{ relay: true, agents: 2, targets: ["echo"] },
    server: { agentAckTimeoutMs: ACK_MS },
  });
  const open1 = await established(world.connect("echo"));
  const open2 = await established(world.connect("echo"));
  const counts = () => world.agents.map((agent) => agent.streamCount);
  assert.deepEqual(counts(), [1, 1]);
  await suspend(world, 0);
  for (let i = 1; i <= 5; i++) {
    const { answeredMs } = await established(world.connect("echo", { via: i % 2 === 0 ? "uds" : "tls" }));
    assert.ok(answeredMs < ACK_MS, `${answeredMs} ms`);
    assert.deepEqual(counts(), [1, 1 + i]);
  }
  await world.relays[0]?.plug();
  for (const connection of [open1, open2]) {
    await connection.send("still here");
    assert.equal(await connection.read(), "still here");
  }
  assert.deepEqual(counts(), [1, 6]);
});

test("while the only link is suspended, a CONNECT waits for its resume", async () => {
  await using world = await startWorld({ relay: true, targets: ["echo"], server: { agentWaitMs: 8_000 } });
  const before = await established(world.connect("echo"));
  await suspend(world);
  let answered = false;
  const waiting = world.connect("echo");
  void waiting.then(() => {
    answered = true;
  });
  await sleep(300);
  assert.equal(answered, false);
  await world.relay.plug();
  const connection = await established(waiting);
  for (const each of [before, connection]) {
    await each.send("here");
    assert.equal(await each.read(), "here");
  }
});

test("while the only link is suspended, a CONNECT that cannot wait longer is told so by its deadline", async () => {
  const CONNECT_MS = 1_000;
  await using world = await startWorld({ relay: true, targets: ["echo"], server: { connectTimeoutMs: CONNECT_MS } });
  const before = await established(world.connect("echo"));
  await suspend(world);
  const refused = await world.connect("echo", { deadlineMs: CONNECT_MS + LATE_MS });
  assert.ok([503, 504].includes(refused.status), `${refused.status} ${refused.reason}`);
  assert.match(refused.headers.get("proxy-status") ?? "", /./);
  await world.relay.plug();
  await before.send("here");
  assert.equal(await before.read(), "here", "and nothing of it reached the stream that was open");
});

// ── the server's death ───────────────────────────────────────────────────────────────────────────────────────────

test("a server that dies ends its callers at once; its agent waits for no grace, but for the next server", async () => {
  await using world = await startWorld({ targets: ["echo"] });
  const [agent] = world.agents;
  const port = world.server.addresses.agents?.port ?? 0;
  const callers = [await established(world.connect("echo")), await established(world.connect("echo", { via: "tls" }))];
  const ended = Promise.all(callers.map(({ socket }) => peerEnd(socket.resume())));
  world.server.destroy(new Error("killed by the test"));
  await within(ended, LATE_MS, "the callers' end");
  await waitFor(() => !agent?.connected);
  await world.startServer({ agentPort: port });
  // Half of the grace that the link would have been waited for.
  await waitFor(() => world.server.tunnels.clusters.get("default")?.tunnels().size === 1, { deadlineMs: 15_000 });
  await established(world.connect("echo"));
  await waitFor(() => world.targets.echo.open === 1, { what: "the streams of the dead server ended at the agent" });
});
