import assert from "node:assert/strict";
import { once } from "node:events";
import { existsSync } from "node:fs";
import { describe, test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { ORDERLY_LIFE_MS } from "../../shared/basics/backoff.ts";
import { createSite, type Site } from "../harness/binaries.ts";
import { type Connection, connectThrough, dialListener } from "../harness/caller.ts";
import { atFull, IN_CI, ON_CI } from "../harness/counts.ts";
import { startRelay } from "../harness/faults.ts";
import { peerEnd } from "../harness/peer-end.ts";
import type { ManagedProcess } from "../harness/processes.ts";
import { freePort } from "../harness/targets/absent.ts";
import { TARGETS } from "../harness/targets.ts";
import { waitFor, within } from "../harness/wait.ts";

const DRAIN_MS = 700;
/** On a busy machine; what waits for a drain of the default takes 30 s. */
const AT_ONCE_MS = 15_000;

describe("the end of a process", { concurrency: 2 }, () => {
  test("SIGTERM at the server: not ready, nothing new, open streams go on to their end, then exit 0", async () => {
    await using echo = await TARGETS.echo();
    using site = await createSite();
    await using server = await site.startServer();
    await using agent = await site.startAgent();
    await using overTls = await site.open("tls", echo.address);
    await using overUds = await site.open("uds", echo.address);

    server.signal("SIGTERM");
    await waitFor(async () => (await readyz(site)).status === 503, { what: "readiness to go" });
    assert.match((await readyz(site)).text, /\[-\]not-draining failed/);
    for (const via of ["tls", "uds"] as const) {
      await assert.rejects(connectThrough(site.listener(via), echo.address), /ECONNREFUSED|ENOENT|without an answer/);
    }
    for (const connection of [overTls, overUds]) assert.equal(await roundTrip(connection), "still here");
    await agent.waitForLog(/"server asked the agent to reconnect"/);
    assert.equal(server.running, true);

    overTls.end();
    assert.equal(await overTls.readAll(), "");
    assert.equal(await roundTrip(overUds), "still here");
    overUds.end();
    assert.equal(await overUds.readAll(), "");
    assert.equal(await within(server.exited, AT_ONCE_MS, "the server to end"), "exit code 0");
    assert.equal(existsSync(site.uds), false, "the socket's file is removed");
    assertCleanEnd(server);
    assert.equal(agent.running, true);
  });

  test("a server whose --drain-timeout passes resets what is open and exits 0", async () => {
    await using echo = await TARGETS.echo();
    using site = await createSite();
    await using server = await site.startServer({ drainTimeout: `${DRAIN_MS}ms` });
    await using _agent = await site.startAgent();
    await using connection = await site.open("tls", echo.address);
    const ended = peerEnd(connection.socket.resume());
    const askedAt = performance.now();
    server.signal("SIGTERM");
    assert.equal(await ended, "ECONNRESET");
    assert.equal(await within(server.exited, AT_ONCE_MS, "the server to end"), "exit code 0");
    assertTook(performance.now() - askedAt, DRAIN_MS);
    await server
      .waitForLog(/"outcome":"draining".*"connection closed"/)
      .catch(() => assert.fail("no line for the reset"));
    assertCleanEnd(server);
  });

  test("an agent that gets SIGTERM is picked no more, finishes what is open and exits 0", async () => {
    await using echo = await TARGETS.echo();
    using site = await createSite();
    await using _server = await site.startServer();
    await using leaving = await site.startAgent({ agentId: "leaving" });
    await using connection = await site.open("tls", echo.address);
    await using staying = await site.startAgent({ agentId: "staying", logLevel: "debug" });
    leaving.signal("SIGTERM");
    await leaving.waitForLog(/"uplink drains"/);
    for (let i = 0; i < 5; i++) {
      await using next = await site.open("uds", echo.address);
      assert.equal(await roundTrip(next), "still here");
    }
    await waitFor(() => staying.log.filter((line) => line.includes('"stream finished"')).length === 5);
    assert.equal(await roundTrip(connection), "still here");
    connection.end();
    assert.equal(await connection.readAll(), "");
    assert.equal(await within(leaving.exited, AT_ONCE_MS, "the agent to end"), "exit code 0");
    assertCleanEnd(leaving);
  });

  test("an agent whose --drain-timeout passes resets what is open and exits 0", IN_CI, async () => {
    await using sink = await TARGETS.sink();
    using site = await createSite();
    await using server = await site.startServer();
    await using agent = await site.startAgent({ drainTimeout: `${DRAIN_MS}ms` });
    await using connection = await site.open("tls", sink.address);
    await connection.send("some bytes");
    await waitFor(() => sink.bytes === 10);
    const ended = peerEnd(connection.socket.resume());
    const askedAt = performance.now();
    agent.signal("SIGTERM");
    assert.equal(await ended, "ECONNRESET");
    assert.equal(
      await within(sink.connections[0]?.ended ?? Promise.reject(new Error()), AT_ONCE_MS, "the target"),
      "ECONNRESET",
    );
    assert.equal(await within(agent.exited, AT_ONCE_MS, "the agent to end"), "exit code 0");
    assertTook(performance.now() - askedAt, DRAIN_MS);
    await server.waitForLog(
      /"outcome":"agent_lost".*the agent has shut down, .* --drain-timeout .*"connection closed"/,
    );
  });

  for (const signal of ON_CI ? (["SIGTERM", "SIGINT"] as const) : (["SIGINT"] as const)) {
    test(`idle processes that get ${signal} exit 0 at once, connected to each other or not`, async () => {
      using site = await createSite();
      await using server = await site.startServer();
      await using agent = await site.startAgent();
      await using unconnected = await site.startAgent({}, { agentPort: 1, wait: false });
      await unconnected.waitForLog(/"uplink attempt failed"/);
      const idle = dialListener(site.listener("tls"));
      idle.on("error", () => {}).resume();
      await once(idle, "secureConnect");
      for (const [process, name] of [
        [unconnected, "an agent without a server"],
        [server, "a server with an agent and an idle caller"],
        [agent, "an agent that has lost its server"],
      ] as const) {
        process.signal(signal);
        assert.equal(await within(process.exited, AT_ONCE_MS, name), "exit code 0");
        assertCleanEnd(process);
      }
      await waitFor(() => idle.destroyed || idle.readableEnded, { what: "the idle caller's end" });
      idle.destroy();
    });
  }

  test("a server that goes leads its agents to come back to its successor, while its own streams end in peace", async () => {
    await using echo = await TARGETS.echo();
    using site = await createSite();
    await using old = await site.startServer();
    const service = { host: "127.0.0.1", port: site.agentPort };
    await using balancer = await startRelay(service);
    await using agent = await site.startAgent({}, { agentPort: balancer.port });
    await using connection = await site.open("tls", echo.address);
    service.port = await freePort();
    old.signal("SIGTERM");
    await agent.waitForLog(/"server asked the agent to reconnect"/);
    await waitFor(() => !existsSync(site.uds), { what: "the old server to stop listening" });
    // A new one beside it, as in a rolling update. The old one keeps its health port, and that of its agents: a link
    // that still carries streams may need another connection.
    const ports = { healthPort: await freePort(), agentPort: service.port };
    await using _young = await site.startServer({ agentWait: "7s", ...ports });
    await using next = await site.open("uds", echo.address);
    assert.equal(await roundTrip(next), "still here");
    assert.equal(await roundTrip(connection), "still here");
    connection.end();
    await connection.readAll();
    assert.equal(await within(old.exited, AT_ONCE_MS, "the old server to end"), "exit code 0");
    assert.equal(existsSync(site.uds), true, "the file is the successor's and stays");
    assert.equal(await roundTrip(next), "still here");
  });

  test("a server that restarts cleanly time after time finds its agent as eager as after the first", async () => {
    using site = await createSite();
    let server = await site.startServer();
    await using agent = await site.startAgent({ logLevel: "debug" });
    const restarts = atFull(5, 3);
    try {
      for (let restart = 1; restart <= restarts; restart++) {
        const connected = uplinkLines(agent, "uplink connected").length;
        await sleep(ORDERLY_LIFE_MS + 50); // a server that keeps an agent for less does not restart cleanly
        server.signal("SIGTERM");
        await within(server.exited, AT_ONCE_MS, "the server to end");
        server = await site.startServer();
        await waitFor(() => uplinkLines(agent, "uplink connected").length > connected, { deadlineMs: 40_000 });
      }
      const sentAway = uplinkLines(agent, "server asked the agent to reconnect").map(({ waitMs }) => waitMs);
      assert.deepEqual(sentAway, new Array<number>(restarts).fill(0), "the next attempt comes at once");
      // Attempts fail while the server is away: each row of them is counted from 1.
      let failed = 0;
      for (const { msg, attempt } of uplinkLines(agent, /^uplink/)) {
        failed = msg === "uplink attempt failed" ? failed + 1 : 0;
        if (failed > 0) assert.equal(attempt, failed);
      }
    } finally {
      await server.stop();
    }
  });
});

// ── helpers ──────────────────────────────────────────────────────────────────────────────────────────────────────

async function roundTrip(connection: Connection): Promise<string> {
  await connection.send("still here");
  return (await connection.readBytes(10)).toString();
}

interface UplinkLine {
  readonly msg: string;
  readonly waitMs?: number;
  readonly attempt?: number;
}

function uplinkLines(agent: ManagedProcess, msg: string | RegExp): UplinkLine[] {
  const lines = agent.log.map((line) => JSON.parse(line) as UplinkLine);
  return lines.filter((line) => (typeof msg === "string" ? line.msg === msg : msg.test(line.msg)));
}

async function readyz(site: Site): Promise<{ status: number; text: string }> {
  const response = await fetch(`http://127.0.0.1:${site.healthPort}/readyz`, { signal: AbortSignal.timeout(1_000) });
  return { status: response.status, text: await response.text() };
}

function assertTook(ms: number, least: number): void {
  assert.ok(ms >= least - 50, `${ms} ms`);
}

/** Nothing went wrong on the way: no error, no stack. */
function assertCleanEnd(process: ManagedProcess): void {
  assert.deepEqual(
    process.log.filter((line) => /"level":"(error|fatal)"|^\s+at /.test(line)),
    [],
  );
}
