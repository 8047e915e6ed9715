import assert from "node:assert/strict";
import { once } from "node:events";
import { type AddressInfo, connect, createServer, type Socket } from "node:net";
import { Duplex } from "node:stream";
import { test } from "node:test";
import { setImmediate as turn } from "node:timers/promises";
import { ReleaseQueue } from "./release-queue.ts";

const PER_TURN = 8;

/** So many sockets, and which of them have been released. */
function watched(queue: ReleaseQueue, count: number) {
  const released: number[] = [];
  const sockets = Array.from({ length: count }, (_, index) => {
    const socket = new Duplex({
      destroy: (error, done) => {
        released.push(index);
        done(error);
      },
    });
    queue.watch(socket.on("error", () => {}));
    return socket;
  });
  return { sockets, released };
}

test("a socket that ends alone is released at once", () => {
  const { sockets, released } = watched(new ReleaseQueue(), 1);
  sockets[0]?.destroy();
  assert.deepEqual(released, [0]);
});

test("sockets that end together are released in order, a few in a turn", async () => {
  const { sockets, released } = watched(new ReleaseQueue(), 3 * PER_TURN);
  for (const socket of sockets) socket.destroy();
  assert.ok(sockets.every(({ destroyed }) => destroyed));
  assert.equal(sockets.at(-1)?.closed, false);
  for (const count of [PER_TURN, 2 * PER_TURN, 3 * PER_TURN]) {
    assert.deepEqual(
      released,
      Array.from({ length: count }, (_, index) => index),
    );
    await turn();
  }
});

test("one that ends while others wait has to wait behind them, and each is released once", async () => {
  const { sockets, released } = watched(new ReleaseQueue(), PER_TURN + 3);
  const [late, ...others] = sockets;
  for (const socket of others) socket.destroy();
  late?.destroy();
  late?.destroy();
  while (released.length < sockets.length) await turn();
  await turn();
  assert.equal(released.length, sockets.length);
  assert.equal(released.at(-1), 0);
});

test("connections that their peers reset together still say why, and close", { timeout: 10_000 }, async () => {
  const queue = new ReleaseQueue();
  const [accepted, clients]: [Socket[], Socket[]] = [[], []];
  const server = createServer((socket) => {
    queue.watch(socket);
    socket.on("error", () => {}).resume();
    accepted.push(socket);
  });
  await once(server.listen(0, "127.0.0.1"), "listening");
  for (let i = 0; i < 5 * PER_TURN; i++) clients.push(connect((server.address() as AddressInfo).port, "127.0.0.1"));
  while (accepted.length < clients.length) await turn();
  for (const client of clients) client.resetAndDestroy();
  while (accepted.some((socket) => !socket.closed)) await turn();
  assert.deepEqual(
    [...new Set(accepted.map(({ errored }) => (errored as NodeJS.ErrnoException).code))],
    ["ECONNRESET"],
  );
  server.close();
});
