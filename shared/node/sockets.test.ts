import assert from "node:assert/strict";
import { once } from "node:events";
import { type AddressInfo, connect, createServer, Socket } from "node:net";
import { Duplex, duplexPair } from "node:stream";
import { test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import tls from "node:tls";
import { until } from "../basics/testing/wait.ts";
import { Authority } from "../pki/certificates.ts";
import { beforeVerification, deferRelease, hasPeer, isReadError, rawSocketOf, readAgain } from "./sockets.ts";

/** Both ends of a TCP connection. */
async function tcpPair(): Promise<{ near: Socket; far: Socket } & Disposable> {
  const server = createServer({ allowHalfOpen: true, pauseOnConnect: true }).listen(0, "127.0.0.1");
  await once(server, "listening");
  const accepted = once(server, "connection");
  const far = connect({ port: (server.address() as AddressInfo).port, host: "127.0.0.1" }).on("error", () => {});
  const [near] = (await accepted) as [Socket];
  near.on("error", () => {});
  server.close();
  const end = (): void => {
    for (const socket of [near, far]) socket.destroy();
  };
  return { near, far, [Symbol.dispose]: end };
}

test("the raw socket of a TLS socket is the one that it was made on", async () => {
  using it = await tcpPair();
  const server = tls.createServer(await (await Authority.create("ca")).issue({ cn: "a", usage: "server" }));
  server.on("tlsClientError", () => {});
  const secured = once(server, "secureConnection");
  server.emit("connection", it.near);
  const client = tls.connect({ socket: it.far, rejectUnauthorized: false }).on("error", () => {});
  const [socket] = (await secured) as [tls.TLSSocket];
  assert.equal(rawSocketOf(socket), it.near);
  assert.equal(rawSocketOf(client), it.far);
  assert.equal(rawSocketOf(it.near), it.near);
  for (const each of [socket, client]) each.destroy();
});

test("a TLS socket that dialled by itself is its own raw socket, and a stream that is no socket has none", () => {
  const dialling = tls.connect({ port: 1, host: "127.0.0.1" }).on("error", () => {});
  assert.equal(rawSocketOf(dialling), dialling);
  dialling.destroy();
  assert.equal(rawSocketOf(new Duplex()), undefined);
});

test("the kernel says whether a connection is open, has ended or was reset", async () => {
  using open = await tcpPair();
  assert.deepEqual([readAgain(open.near), hasPeer(open.near)], ["open", true]);
  using ended = await tcpPair();
  ended.far.end();
  await until(() => readAgain(ended.near) === "end");
  assert.equal(hasPeer(ended.near), true);
  using reset = await tcpPair();
  reset.far.resetAndDestroy();
  await until(() => !hasPeer(reset.near));
  assert.equal(readAgain(reset.near), "failed");
  assert.equal(readAgain(new Socket()), undefined, "it has no descriptor");
});

test("a destroyed stream closes once it is released, and tells why it was destroyed", async () => {
  const [stream] = duplexPair();
  stream.on("error", () => {});
  const destroyed: { error: Error | null; release: () => void }[] = [];
  deferRelease(stream, (error, release) => destroyed.push({ error, release }));
  const reason = new Error("lost");
  stream.destroy(reason);
  await sleep(5);
  assert.deepEqual([stream.destroyed, stream.closed, destroyed.length], [true, false, 1]);
  assert.equal(destroyed[0]?.error, reason);
  const closed = new Promise((resolve) => stream.once("close", resolve));
  destroyed[0]?.release();
  await closed;
});

test("a failed read of the kernel is told from other errors", async () => {
  using it = await tcpPair();
  const failed = once(it.near, "error").catch(([error]) => [error]);
  it.near.resume();
  it.far.resetAndDestroy();
  const [error] = (await failed) as [Error];
  assert.equal(isReadError(error), true);
  assert.equal(isReadError(new Error("other")), false);
});

test("a client looks at the server's certificate before Node refuses it", async () => {
  using it = await tcpPair();
  const server = tls.createServer(await (await Authority.create("ca")).issue({ cn: "shown", usage: "server" }));
  server.on("tlsClientError", () => {});
  server.emit("connection", it.near);
  const client = tls.connect({ socket: it.far, host: "localhost" });
  let seen: unknown;
  beforeVerification(client, () => {
    seen = client.getPeerCertificate(false).subject.CN;
  });
  await assert.rejects(once(client, "secureConnect"), /certificate/);
  assert.equal(seen, "shown");
  assert.deepEqual(client.getPeerCertificate(false), null, "the premise: afterwards Node has no certificate any more");
});
