import assert from "node:assert/strict";
import { once } from "node:events";
import net from "node:net";
import { test } from "node:test";
import tls from "node:tls";
import { peerAction } from "./connection-end.ts";

/** The error of node:tls when the peer ends the connection at the beginning of the handshake. */
async function inHandshake(t: { after(done: () => void): void }, end: (socket: net.Socket) => void): Promise<Error> {
  const server = net.createServer((socket) => socket.on("error", () => {}).once("data", () => end(socket)));
  t.after(() => server.close());
  await once(server.listen(0, "127.0.0.1"), "listening");
  const { port } = server.address() as net.AddressInfo;
  const [error] = await once(tls.connect({ port, host: "127.0.0.1" }), "error");
  return error as Error;
}

test("an orderly close is distinguished from a reset in every error that Node has for them", async (t) => {
  assert.equal(peerAction(await inHandshake(t, (socket) => socket.end())), "closed the connection");
  assert.equal(peerAction(await inHandshake(t, (socket) => socket.resetAndDestroy())), "reset the connection");
  const hangUp = Object.assign(new Error("socket hang up"), { code: "ECONNRESET" });
  const pipe = Object.assign(new Error("write EPIPE"), { code: "EPIPE", syscall: "write" });
  assert.deepEqual([hangUp, pipe].map(peerAction), ["closed the connection", "closed the connection"]);
  assert.equal(peerAction(Object.assign(new Error("x"), { code: "ECONNREFUSED", syscall: "connect" })), undefined);
});
