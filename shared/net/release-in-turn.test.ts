import assert from "node:assert/strict";
import { once } from "node:events";
import { type AddressInfo, connect, createServer, type Socket } from "node:net";
import { Duplex } from "node:stream";
import { test } from "node:test";
import { setImmediate as turn } from "node:timers/promises";
import { connect as connectTls, createServer as createTlsServer } from "node:tls";
import { Authority } from "../pki/certificates.ts";
import { releaseInTurn } from "./release-in-turn.ts";
import { TurnQueue } from "./turn-queue.ts";

/** More than one turn releases. */
const MANY = 40;

test("sockets whose peers end together are destroyed at once, and released a few in a turn, each once", async () => {
  const turns = new TurnQueue();
  const released: number[] = [];
  const sockets = Array.from({ length: MANY }, (_, index) => {
    const socket = new Duplex({
      read: () => {},
      autoDestroy: false,
      destroy: (error, done) => {
        released.push(index);
        done(error);
      },
    });
    releaseInTurn(socket, turns);
    return socket.resume();
  });
  for (const socket of sockets) socket.push(null);
  while (sockets.some(({ readableEnded }) => !readableEnded)) await turn();
  for (const socket of sockets) socket.destroy();
  sockets.at(-1)?.destroy();
  assert.ok(sockets.every(({ destroyed }) => destroyed));
  assert.ok(released.length < MANY);
  assert.equal(sockets.at(-1)?.closed, false);
  while (sockets.some(({ closed }) => !closed)) await turn();
  assert.deepEqual(
    released,
    Array.from({ length: MANY }, (_, index) => index),
  );
});

test("a connection that is destroyed while more is to be read from it harms nobody", { timeout: 10_000 }, async () => {
  const turns = new TurnQueue();
  const ca = await Authority.create("ca");
  const server = createTlsServer(await ca.issue({ cn: "server", usage: "server" }), (socket) => {
    releaseInTurn(socket, turns);
    socket.on("error", () => {});
    // TLS has more records in hand, and gives them to whoever is there.
    socket.once("data", () => {
      for (let i = 0; i < MANY; i++) turns.run(() => {}); // it would have to wait
      socket.destroy();
    });
  });
  await once(server.listen(0, "127.0.0.1"), "listening");
  const { port } = server.address() as AddressInfo;
  const client = connectTls({ port, host: "127.0.0.1", rejectUnauthorized: false });
  client.on("error", () => {}).end(Buffer.alloc(256 * 1024));
  await once(server, "secureConnection");
  server.close();
  await once(server, "close"); // its connections too
});

test("connections that their peers reset together still say why, and close", { timeout: 10_000 }, async () => {
  const turns = new TurnQueue();
  const [accepted, clients]: [Socket[], Socket[]] = [[], []];
  const server = createServer((socket) => {
    releaseInTurn(socket, turns);
    socket.on("error", () => {}).resume();
    accepted.push(socket);
  });
  await once(server.listen(0, "127.0.0.1"), "listening");
  for (let i = 0; i < MANY; i++) clients.push(connect((server.address() as AddressInfo).port, "127.0.0.1"));
  while (accepted.length < clients.length) await turn();
  for (const client of clients) client.resetAndDestroy();
  while (accepted.some((socket) => !socket.closed)) await turn();
  assert.deepEqual(
    [...new Set(accepted.map(({ errored }) => (errored as NodeJS.ErrnoException).code))],
    ["ECONNRESET"],
  );
  server.close();
});
