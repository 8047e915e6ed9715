import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { once } from "node:events";
import { connect, type Socket } from "node:net";
import { test } from "node:test";
import { type FaultRelay, startRelay } from "./faults.ts";
import { Payload } from "./payload.ts";
import {
  bannerTarget,
  echoTarget,
  halfCloseTarget,
  resettingTarget,
  sinkTarget,
  sourceTarget,
} from "./targets/plain.ts";
import { tcpTarget } from "./targets/tcp.ts";
import { waitFor, within } from "./wait.ts";

function dial(relay: FaultRelay): Socket {
  const socket = connect({ host: relay.host, port: relay.port, allowHalfOpen: true, noDelay: true });
  socket.on("error", () => {});
  return socket;
}

async function readAll(socket: Socket): Promise<{ bytes: number; sha256: string }> {
  const hash = createHash("sha256");
  let bytes = 0;
  socket.on("data", (chunk) => {
    bytes += chunk.length;
    hash.update(chunk);
  });
  await once(socket, "end");
  return { bytes, sha256: hash.digest("hex") };
}

test("bytes pass whole in random small pieces, and so does a half-close", async () => {
  await using target = await halfCloseTarget({ bytes: 200_000, seed: 3 });
  await using relay = await startRelay(target);
  relay.split(97);
  const socket = dial(relay);
  socket.end("done");
  const got = await readAll(socket);
  assert.deepEqual(got, { bytes: 200_000, sha256: new Payload(3).sha256(200_000) });
  assert.deepEqual(relay.bytes, { forward: 4, backward: 200_000 });
});

test("pieces arrive in reads of their own, none above the bound", async () => {
  await using target = await bannerTarget("x".repeat(400));
  await using relay = await startRelay(target);
  relay.split(50);
  const socket = dial(relay);
  let reads = 0;
  let bytes = 0;
  socket.on("data", (chunk) => {
    reads++;
    bytes += chunk.length;
  });
  await waitFor(() => bytes === 400);
  assert.ok(reads >= 4, `${reads} reads`);
  socket.destroy();
});

test("a delay holds every byte both ways, in order, without limiting throughput", async () => {
  const bytes = 50_000_000;
  await using target = await sourceTarget({ bytes });
  await using relay = await startRelay(target);
  relay.delay(40);
  const started = performance.now();
  const socket = dial(relay);
  await once(socket, "data");
  assert.ok(performance.now() - started >= 39, "the first byte waited");
  socket.destroy();
  const second = performance.now();
  const got = await readAll(dial(relay));
  assert.equal(got.sha256, new Payload().sha256(bytes));
  // A window of 64 KiB per 40 ms would take 30 s.
  assert.ok(performance.now() - second < 5000);
});

test("an echo through a delay of 30 ms each way takes at least 60 ms", async () => {
  await using target = await echoTarget();
  await using relay = await startRelay(target);
  relay.delay(30);
  const socket = dial(relay);
  await once(socket, "connect");
  const started = performance.now();
  socket.write("?");
  await once(socket, "data");
  assert.ok(performance.now() - started >= 59);
  socket.destroy();
});

test("a throttle holds the rate, and lifting it lets the rest go", async () => {
  await using target = await sourceTarget({ bytes: 20_000_000 });
  await using relay = await startRelay(target);
  relay.throttle(1_000_000);
  const socket = dial(relay);
  let bytes = 0;
  socket.on("data", (chunk) => {
    bytes += chunk.length;
  });
  await waitFor(() => bytes > 0);
  const started = performance.now();
  const before = bytes;
  await waitFor(() => bytes - before > 300_000);
  const rate = (bytes - before) / ((performance.now() - started) / 1000);
  assert.ok(rate < 1_300_000 && rate > 50_000, `${rate} B/s`);
  relay.throttle(Number.POSITIVE_INFINITY);
  await waitFor(() => bytes === 20_000_000, { deadlineMs: 15_000 });
  socket.destroy();
});

test("a throttle pushes back on the sender", async () => {
  await using target = await sinkTarget();
  await using relay = await startRelay(target);
  relay.throttle(10_000);
  const socket = dial(relay);
  const block = Buffer.alloc(1_000_000);
  let sent = 0;
  while (socket.write(block) || sent < 20) sent++;
  await new Promise((resolve) => setTimeout(resolve, 200));
  assert.ok(socket.writableLength > 5_000_000, "most of it waits in the sender");
  socket.destroy();
});

test("a dropped path tells nobody anything, in either direction alone, and loses nothing when it is back", async () => {
  await using target = await echoTarget();
  await using relay = await startRelay(target);
  const socket = dial(relay);
  let got = "";
  let ended = false;
  socket.on("data", (chunk) => {
    got += chunk;
  });
  socket.on("end", () => {
    ended = true;
  });
  socket.write("a");
  await waitFor(() => got === "a");
  relay.drop("backward");
  socket.write("b");
  await waitFor(() => relay.bytes.forward === 2);
  relay.drop();
  socket.write("c");
  socket.end();
  await new Promise((resolve) => setTimeout(resolve, 100));
  assert.equal(got, "a");
  assert.equal(ended, false);
  assert.equal(relay.bytes.forward, 2);
  assert.equal(target.open, 1);
  relay.restore();
  await waitFor(() => ended);
  assert.equal(got, "abc");
});

test("connections that begin while the path is dropped get no answer until it is back", async () => {
  await using target = await bannerTarget("hi");
  await using relay = await startRelay(target);
  relay.drop();
  const socket = dial(relay);
  await once(socket, "connect");
  let got = "";
  socket.on("data", (chunk) => {
    got += chunk;
  });
  await new Promise((resolve) => setTimeout(resolve, 50));
  assert.equal(got, "");
  relay.restore();
  await waitFor(() => got === "hi");
  socket.destroy();
});

test("a cut with RST is a reset at both ends, a cut with FIN is an end at both", async () => {
  const ends: string[] = [];
  await using target = await tcpTarget((socket) => {
    socket.on("error", (error: NodeJS.ErrnoException) => ends.push(error.code ?? "?"));
    socket.on("end", () => {
      ends.push("fin");
      socket.end();
    });
    socket.resume();
  });
  await using relay = await startRelay(target);
  for (const how of ["rst", "fin"] as const) {
    const socket = dial(relay).resume();
    await once(socket, "connect");
    await waitFor(() => target.open === 1);
    const end = new Promise((resolve) => {
      socket.on("error", (error: NodeJS.ErrnoException) => resolve(error.code));
      socket.on("end", () => resolve("fin"));
    });
    relay.cut(how);
    assert.equal(await end, how === "rst" ? "ECONNRESET" : "fin");
    socket.destroy();
    await waitFor(() => target.open === 0 && relay.open === 0);
  }
  assert.deepEqual(ends, ["ECONNRESET", "fin"]);
});

test("an unplugged relay refuses, and listens on the same port when it is plugged in again", async () => {
  await using target = await bannerTarget("hi");
  await using relay = await startRelay(target);
  const { port } = relay;
  await relay.unplug();
  const refused = dial(relay);
  const [error] = await once(refused, "error");
  assert.equal((error as NodeJS.ErrnoException).code, "ECONNREFUSED");
  await relay.plug();
  assert.equal(relay.port, port);
  const socket = dial(relay);
  assert.equal(String((await once(socket, "data"))[0]), "hi");
  socket.destroy();
});

test("a target's reset goes through as a reset", async () => {
  await using target = await resettingTarget({ received: 3 });
  await using relay = await startRelay(target);
  const socket = dial(relay);
  socket.write("abc");
  const [error] = await within(once(socket, "error"), 15_000, "a reset");
  assert.equal((error as NodeJS.ErrnoException).code, "ECONNRESET");
});

test("a path that dies loses sight of what is under way on it, until it is back", async () => {
  await using target = await bannerTarget("hi");
  await using relay = await startRelay(target);
  relay.delay(60);
  const socket = dial(relay);
  let got = "";
  socket.on("data", (chunk) => {
    got += chunk;
  });
  await waitFor(() => target.accepted === 1);
  await new Promise((resolve) => setTimeout(resolve, 20));
  relay.drop();
  await new Promise((resolve) => setTimeout(resolve, 120));
  assert.equal(got, "");
  relay.restore();
  await waitFor(() => got === "hi");
  socket.destroy();
});
