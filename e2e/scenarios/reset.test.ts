import assert from "node:assert/strict";
import type { Socket } from "node:net";
import { test } from "node:test";
import { connectThrough } from "../harness/caller.ts";
import { atFull } from "../harness/counts.ts";
import { Payload } from "../harness/payload.ts";
import { peerEnd } from "../harness/peer-end.ts";
import { tapBefore } from "../harness/tap.ts";
import { sendPayload, sourceTarget } from "../harness/targets/plain.ts";
import { type TcpTarget, tcpTarget } from "../harness/targets/tcp.ts";
import { waitFor, within } from "../harness/wait.ts";
import { startWorld } from "../harness/world.ts";

const ROUNDS = atFull(50);
const MIB = 1024 * 1024;

/** The socket of the only connection that a target has. */
function only(target: TcpTarget): Socket {
  const [socket, ...others] = target.sockets();
  assert.ok(socket && others.length === 0);
  return socket;
}

function soon<T>(promise: Promise<T>, what: string): Promise<T> {
  return within(promise, 5000, what);
}

test("a target's reset is a TCP reset for a caller over TLS, without close_notify", async () => {
  await using world = await startWorld({ targets: ["banner"] });
  const { tap, listener } = await tapBefore(world.listener("tls"));
  await using _ = tap;
  await using connection = await connectThrough(listener, world.targets.banner.address);
  assert.match(await connection.read(), /^220 /);
  const end = peerEnd(connection.socket);
  connection.socket.resume();
  const before = tap.received;
  only(world.targets.banner).resetAndDestroy();
  assert.equal(await soon(tap.ended, "the end on the raw socket"), "ECONNRESET");
  assert.equal(tap.received, before, "no record follows, neither alert nor data");
  assert.equal(await soon(end, "the end for the caller"), "ECONNRESET");
});

test("a target's reset is a full close without further bytes for a caller on the unix socket", async () => {
  await using world = await startWorld({ targets: ["banner"] });
  await using connection = await world.connect("banner", { via: "uds" });
  assert.match(await connection.read(), /^220 /);
  only(world.targets.banner).resetAndDestroy();
  assert.equal(await connection.readAll(), "");
  // Full, not half: the server reads no more either.
  await assert.rejects(soon(connection.send("more"), "an answer to a write"), { code: "EPIPE" });
});

test("a caller's reset over TLS is a TCP reset for the target", async () => {
  await using world = await startWorld({ targets: ["banner"] });
  const { tap, listener } = await tapBefore(world.listener("tls"));
  await using _ = tap;
  await using connection = await connectThrough(listener, world.targets.banner.address);
  assert.match(await connection.read(), /^220 /);
  const end = peerEnd(only(world.targets.banner));
  tap.back?.resetAndDestroy();
  assert.equal(await soon(end, "the end for the target"), "ECONNRESET");
});

test("a caller that leaves the unix socket in the middle of an answer is a TCP reset for the target", async () => {
  await using world = await startWorld({ targets: ["source"] });
  await using connection = await world.connect("source", { via: "uds" });
  await connection.readBytes(MIB);
  const end = peerEnd(only(world.targets.source));
  connection.socket.destroy();
  assert.equal(await soon(end, "the end for the target"), "ECONNRESET");
});

test("a download that the target cuts by a reset never passes for a whole one, however slow the caller is", async () => {
  await using target = await sourceTarget({ bytes: 64 * MIB });
  await using world = await startWorld();
  for (let round = 0; round < ROUNDS; round++) {
    const { tap, listener } = await tapBefore(world.listener("tls"));
    await using _ = tap;
    await using connection = await connectThrough(listener, target.address);
    const { socket } = connection;
    const end = peerEnd(socket);
    await connection.readBytes(1 + round * 20_000); // and then it reads nothing for a while
    only(target).resetAndDestroy();
    await waitFor(() => target.open === 0);
    if (round % 2 === 0) await new Promise(setImmediate);
    socket.resume();
    assert.equal(await soon(end, "the end for the caller"), "ECONNRESET");
    assert.equal(await soon(tap.ended, "the end on the raw socket"), "ECONNRESET");
  }
});

test("an upload that the caller cuts by a reset never passes for a whole one, however slow the target is", async () => {
  await using target = await tcpTarget((socket) => socket.pause());
  await using world = await startWorld();
  for (let round = 0; round < ROUNDS; round++) {
    const { tap, listener } = await tapBefore(world.listener("tls"));
    await using _ = tap;
    await using connection = await connectThrough(listener, target.address);
    sendPayload(connection.socket, new Payload(), 64 * MIB);
    await waitFor(() => (tap.back?.bytesWritten ?? 0) > round * 20_000);
    const socket = only(target);
    const end = peerEnd(socket);
    tap.back?.resetAndDestroy();
    if (round % 2 === 0) await new Promise(setImmediate);
    socket.resume();
    assert.equal(await soon(end, "the end for the target"), "ECONNRESET");
    socket.destroy();
    await waitFor(() => target.open === 0);
  }
});

test("clean ends stay clean at both ends, whoever is first", async () => {
  for (const first of ["caller", "target"] as const) {
    await using target = await tcpTarget((socket) => {
      socket.resume();
      if (first === "target") socket.end("bye");
      else socket.on("end", () => socket.end("bye"));
    });
    await using world = await startWorld();
    const { tap, listener } = await tapBefore(world.listener("tls"));
    await using _ = tap;
    for (const via of ["uds", "tls"] as const) {
      await using connection = await connectThrough(via === "tls" ? listener : world.listener("uds"), target.address);
      const { socket } = connection;
      const ends = [peerEnd(socket), peerEnd(only(target))];
      if (first === "caller") socket.end("bye");
      else socket.on("end", () => socket.end("bye"));
      socket.resume();
      assert.deepEqual(await soon(Promise.all(ends), "both ends"), ["fin", "fin"], `${first} first, ${via}`);
      if (via === "tls") assert.equal(await soon(tap.ended, "the end on the raw socket"), "fin");
      await waitFor(() => target.open === 0);
    }
  }
});
