import assert from "node:assert/strict";
import { once } from "node:events";
import { connect, type Socket } from "node:net";
import { test } from "node:test";
import { type FaultRelay, startRelay } from "./faults.ts";
import { peerEnd } from "./peer-end.ts";
import { bannerTarget, echoTarget, sinkTarget, sourceTarget } from "./targets/plain.ts";
import { type TcpTarget, tcpTarget } from "./targets/tcp.ts";
import { waitFor, within } from "./wait.ts";

async function dial(relay: FaultRelay): Promise<Socket> {
  const socket = connect({ host: relay.host, port: relay.port, allowHalfOpen: true, noDelay: true });
  socket.on("error", () => {});
  await once(socket, "connect");
  return socket;
}

/** Bytes up to the end, and what kind of end it was. */
async function received(socket: Socket): Promise<{ bytes: number; end: string }> {
  let bytes = 0;
  socket.on("data", (chunk: Buffer) => {
    bytes += chunk.length;
  });
  const end = await within(peerEnd(socket), 5_000, "the end of the connection");
  return { bytes, end };
}

/** A target that keeps what it got of each connection. */
async function recordingTarget(): Promise<{ target: TcpTarget; got: ReturnType<typeof received>[] }> {
  const got: ReturnType<typeof received>[] = [];
  const target = await tcpTarget((socket) => {
    got.push(received(socket));
    socket.on("end", () => socket.destroy());
  });
  return { target, got };
}

for (const [how, end] of [
  ["fin", "fin"],
  ["rst", "ECONNRESET"],
] as const) {
  test(`a cut by ${how} after N bytes forward lets exactly N of them arrive, however they are chunked`, async () => {
    const { target, got } = await recordingTarget();
    await using _ = target;
    await using relay = await startRelay(target);
    for (const bytes of [0, 1, 17, 70_000]) {
      const socket = await dial(relay);
      await waitFor(() => target.open === 1);
      const ended = received(socket);
      relay.cutAt({ how, forward: bytes });
      for (let sent = 0; sent < 80_000; sent += 10_000) socket.write(Buffer.alloc(10_000));
      assert.equal((await ended).end, end);
      assert.deepEqual(await got.at(-1), { bytes, end }, `cut after ${bytes}`);
      socket.destroy();
      await waitFor(() => target.open === 0 && relay.open === 0);
    }
    assert.equal(relay.cuts, 4);
  });
}

test("a cut is counted from the moment it is asked for, and its place does not move what came before", async () => {
  const { target, got } = await recordingTarget();
  await using _ = target;
  await using relay = await startRelay(target);
  const socket = await dial(relay);
  socket.write(Buffer.alloc(1000));
  await waitFor(() => relay.bytes.forward === 1000);
  relay.cutAt({ how: "fin", forward: 5 });
  socket.write(Buffer.alloc(1000));
  assert.deepEqual(await got[0], { bytes: 1005, end: "fin" });
  socket.destroy();
});

test("the k-th connection from now is cut at its byte of either direction, the others are not", async () => {
  await using target = await sourceTarget({ bytes: 1000 });
  await using relay = await startRelay(target);
  (await dial(relay)).destroy();
  await waitFor(() => relay.accepted === 1);
  relay.cutLater(2, { how: "rst", backward: 333, forward: 7 });
  relay.cutLater(3, { how: "rst", backward: 333, forward: 7 });
  const [first, second, third] = [await dial(relay), await dial(relay), await dial(relay)];
  assert.deepEqual(await received(first), { bytes: 1000, end: "fin" });
  assert.deepEqual(await received(second), { bytes: 333, end: "ECONNRESET" });
  third.pause().write("1234567");
  assert.equal((await received(third)).end, "ECONNRESET");
  assert.equal(relay.cuts, 2);
  for (const socket of [first, second, third]) socket.destroy();
});

test("a silenced connection takes everything, brings nothing and tells nobody; new ones are relayed", async () => {
  await using target = await sinkTarget();
  await using relay = await startRelay(target);
  const socket = await dial(relay);
  socket.write("before");
  await waitFor(() => target.bytes === 6);
  const [atTarget] = target.connections;
  let told = false;
  for (const each of [atTarget?.ended, peerEnd(socket.resume())]) void each?.then(() => (told = true));
  relay.cut("silence");
  const block = Buffer.alloc(1_000_000);
  for (let i = 0; i < 20; i++) await new Promise((resolve) => socket.write(block, resolve));
  const other = await dial(relay);
  other.write("hello");
  await waitFor(() => target.bytes === 11);
  assert.equal(told, false, "a later connection got through, the silent one is as it was");
  other.destroy();

  const closed = once(socket, "close");
  socket.destroy();
  await closed;
  await waitFor(() => relay.open === 1);
  assert.equal(target.open, 1, "the end of one side is not told to the other");
  atTarget?.socket.destroy();
  await waitFor(() => relay.open === 0);
});

test("a connection can be silenced at a byte, and ended by the relay afterwards", async () => {
  await using target = await sourceTarget();
  await using relay = await startRelay(target);
  relay.cutLater(1, { how: "silence", backward: 1_000 });
  const socket = await dial(relay);
  const got = received(socket);
  await waitFor(() => relay.cuts === 1);
  relay.cut("rst");
  assert.deepEqual(await got, { bytes: 1000, end: "ECONNRESET" });
});

test("what a dropped path holds back is lost when the connection is then cut", async () => {
  const { target, got } = await recordingTarget();
  await using _ = target;
  await using relay = await startRelay(target);
  for (const how of ["fin", "rst"] as const) {
    const socket = await dial(relay);
    const before = relay.bytes.forward;
    socket.write("seen");
    await waitFor(() => relay.bytes.forward === before + 4);
    relay.drop();
    socket.write(Buffer.alloc(300_000));
    await new Promise((resolve) => setTimeout(resolve, 30));
    relay.cut(how);
    relay.restore();
    assert.deepEqual(await got.at(-1), { bytes: 4, end: how === "rst" ? "ECONNRESET" : "fin" });
    socket.destroy();
    await waitFor(() => relay.open === 0);
  }
});

test("a delay holds every byte both ways, in order", async () => {
  await using target = await echoTarget();
  await using relay = await startRelay(target);
  relay.delay(30);
  const socket = await dial(relay);
  const started = performance.now();
  socket.write("?");
  await once(socket, "data");
  assert.ok(performance.now() - started >= 59);
  socket.destroy();
});

test("a dropped path tells nobody anything, in either direction alone, and loses nothing when it is back", async () => {
  await using target = await echoTarget();
  await using relay = await startRelay(target);
  const socket = await dial(relay);
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
  assert.deepEqual([got, ended, relay.bytes.forward, target.open], ["a", false, 2, 1]);
  relay.restore();
  await waitFor(() => ended);
  assert.equal(got, "abc");
});

test("an unplugged relay refuses, and listens on the same port when it is plugged in again", async () => {
  await using target = await bannerTarget("hi");
  await using relay = await startRelay(target);
  const { port } = relay;
  await relay.unplug();
  await assert.rejects(dial(relay), { code: "ECONNREFUSED" });
  await relay.plug();
  assert.equal(relay.port, port);
  const socket = await dial(relay);
  assert.equal(String((await once(socket, "data"))[0]), "hi");
  socket.destroy();
});
