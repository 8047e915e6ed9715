import assert from "node:assert/strict";
import { once } from "node:events";
import { duplexPair } from "node:stream";
import { test } from "node:test";
import { heldMemory } from "../../e2e/harness/held-memory.ts";
import { until } from "../../shared/basics/testing/wait.ts";
import { UNBOUNDED } from "../../shared/limits/memory-account.ts";
import { encodeHead, encodeProbe, type ProbeMode, readProbeAnswer } from "../../shared/wire/stream-head.ts";
import { isViolation } from "../../shared/yamux/errors.ts";
import { Session } from "../../shared/yamux/session.ts";
import type { Stream } from "../../shared/yamux/stream.ts";
import { DuplexTransport } from "../../shared/yamux/testing/duplex-transport.ts";
import { ProbeRoom, Probes } from "./probes.ts";

/** An agent's session with a server that answers its probes. */
function agentOf(maxMs?: number, room = new ProbeRoom()) {
  const [near, far] = duplexPair();
  const probes = new Probes(room, UNBOUNDED, maxMs);
  const none = { onStream: () => assert.fail("no stream is opened here"), onClosed: () => {} };
  let ended: Error | undefined;
  const server = new Session("server", new DuplexTransport(near), {
    onStream: (stream) => probes.take(stream),
    onClosed: (reason) => {
      ended = reason;
    },
  });
  const agent = new Session("client", new DuplexTransport(far), none);
  return {
    server,
    /** What the server has ended the session for. */
    get ended() {
      return ended;
    },
    open: (head: Buffer | undefined): Stream => agent.open(head).on("error", () => {}) as Stream,
    [Symbol.dispose]: () => {
      agent.destroy();
      server.destroy();
    },
  };
}

test("an echo gives back what comes, and ends when the agent ends", async () => {
  using world = agentOf();
  const stream = world.open(encodeProbe("echo"));
  const { time } = await readProbeAnswer(stream);
  assert.ok(Math.abs((time ?? 0) - Date.now()) < 60_000, "the server's clock");
  stream.end("ping");
  const [echo] = await Promise.all([once(stream, "data"), once(stream, "end")]);
  assert.equal(String(echo[0]), "ping");
  await until(() => world.server.streamCount === 0);
});

test("what an agent sends an echo byte by byte, and does not read, costs some kilobytes", async () => {
  using world = agentOf();
  const stream = world.open(encodeProbe("echo"));
  await readProbeAnswer(stream);
  stream.pause();
  const send = async (bytes: number) => {
    for (let byte = 0; byte < bytes; byte++) {
      stream.write("x");
      await new Promise((resolve) => setImmediate(resolve));
    }
  };
  const { heap: before } = heldMemory();
  await send(40_000);
  const grown = heldMemory().heap - before;
  assert.ok(grown < 4 * 1024 * 1024, `${grown} bytes`);
});

test("a source pours until the agent resets it, and no faster than it reads", async () => {
  using world = agentOf();
  const stream = world.open(encodeProbe("source"));
  await readProbeAnswer(stream);
  await until(() => stream.readableLength >= 64 * 1024);
  let received = 0;
  stream.on("data", (chunk: Buffer) => {
    received += chunk.length;
  });
  await until(() => received > 1024 * 1024);
  stream.destroy();
  await until(() => world.server.streamCount === 0);
});

test("a source gives many blocks in one turn of the loop, so that slow turns do not bound what is measured", async () => {
  using world = agentOf();
  const stream = world.open(encodeProbe("source"));
  await readProbeAnswer(stream);
  let received = 0;
  stream.on("data", (chunk: Buffer) => {
    received += chunk.length;
  });
  const bytes = 32 * 1024 * 1024;
  let turns = 0;
  await until(() => ++turns > 0 && received > bytes);
  assert.ok(bytes / turns > 2 * 64 * 1024, `${bytes} bytes in ${turns} turns`);
  stream.end();
  await once(stream, "end");
  await until(() => world.server.streamCount === 0);
});

test("a sink swallows all, without a word, and ends with the agent", async () => {
  using world = agentOf();
  const stream = world.open(encodeProbe("sink"));
  await readProbeAnswer(stream);
  stream.end(Buffer.alloc(300_000));
  stream.on("data", () => assert.fail("a sink has nothing to say"));
  await once(stream, "end");
  await until(() => world.server.streamCount === 0);
});

test("a second probe at the same time is refused with a word, and the next one is taken", async () => {
  using world = agentOf();
  const first = world.open(encodeProbe("sink"));
  await readProbeAnswer(first);
  const second = world.open(encodeProbe("echo"));
  await assert.rejects(readProbeAnswer(second), { code: "limited", message: /under way/ });
  second.end();
  first.destroy();
  await until(() => world.server.streamCount === 0);
  await readProbeAnswer(world.open(encodeProbe("echo")));
});

test("what is no probe is refused with a word", async () => {
  using world = agentOf();
  const connect = encodeHead({ kind: "connect", target: "10.0.0.1:10250" });
  await assert.rejects(readProbeAnswer(world.open(connect)), { code: "forbidden", message: /probe only/ });
  const unknown = encodeProbe("flood" as ProbeMode);
  await assert.rejects(readProbeAnswer(world.open(unknown)), { code: "forbidden", message: /"flood"/ });
});

test("every stream of an agent is over in time, whatever it does, and a flood of them is reset", async () => {
  using world = agentOf(50);
  const silent = world.open(undefined);
  const greedy = world.open(encodeProbe("source"));
  const refused = world.open(encodeProbe("flood" as ProbeMode));
  const flood = Array.from({ length: 50 }, () => world.open(undefined));
  await until(() => [silent, greedy, refused, ...flood].every((stream) => stream.destroyed || stream.readableEnded));
  await until(() => world.server.streamCount === 0);
});

test("an agent that opens streams again and again, whatever for, loses its session", async () => {
  using world = agentOf();
  const open = () => world.open(encodeProbe("flood" as ProbeMode));
  for (let opened = 1; opened < 100; opened++) open().destroy();
  await assert.rejects(readProbeAnswer(open()));
  assert.equal(world.ended, undefined, "no doctor needs as many");
  for (let opened = 0; opened < 2_000; opened++) open().destroy();
  await until(() => world.ended !== undefined);
  assert.ok(isViolation(world.ended));
});

test("two agents of a cluster measure at a time; one more is told when to come again", async () => {
  const room = new ProbeRoom();
  using one = agentOf(undefined, room);
  using other = agentOf(undefined, room);
  using third = agentOf(undefined, room);
  const probes = [one, other].map((world) => world.open(encodeProbe("sink")));
  for (const probe of probes) await readProbeAnswer(probe);
  const refused = third.open(encodeProbe("echo"));
  await assert.rejects(readProbeAnswer(refused), { code: "limited", message: /try again in 3 s/, retryAfterMs: 3_000 });
  refused.end();
  probes[0]?.destroy();
  await until(() => one.server.streamCount === 0 && third.server.streamCount === 0);
  await readProbeAnswer(third.open(encodeProbe("echo")));
});

test("each byte of a probe is told to the pace of its cluster, and waits as long as that says", async () => {
  const room = new ProbeRoom();
  let bytes = 0;
  let restMs = 0;
  room.paceOfConnections = (count) => {
    bytes += count;
    return restMs;
  };
  using quick = agentOf(undefined, room);
  const echo = quick.open(encodeProbe("echo"));
  await readProbeAnswer(echo);
  echo.end("ping");
  await Promise.all([once(echo, "data"), once(echo, "end")]);
  assert.equal(bytes, 2 * "ping".length, "there and back");

  using world = agentOf(500, room);
  restMs = 60_000;
  bytes = 0;
  for (const mode of ["source", "sink"] as const) {
    await until(() => world.server.streamCount === 0);
    const stream = world.open(encodeProbe(mode));
    await readProbeAnswer(stream);
    stream.resume();
    if (mode === "sink") stream.write(Buffer.alloc(10 * 1024 * 1024));
    await until(() => stream.destroyed || stream.readableEnded);
  }
  assert.ok(bytes > 0 && bytes <= 2 * 64 * 1024, `${bytes} have passed`);
});

test("a probe behind those that have moved the budget of an hour is told when to come again", async () => {
  const budget = 4 * 1024 * 1024;
  const room = new ProbeRoom(budget);
  using world = agentOf(undefined, room);
  const stream = world.open(encodeProbe("source"));
  await readProbeAnswer(stream);
  let received = 0;
  stream.on("data", (chunk: Buffer) => {
    received += chunk.length;
  });
  await until(() => received > budget);
  stream.destroy();
  await until(() => world.server.streamCount === 0);
  const refused = readProbeAnswer(world.open(encodeProbe("source")));
  await assert.rejects(refused, /the measurements of this cluster have moved 4 ?MiB within an hour: try again in/);
});
