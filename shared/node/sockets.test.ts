import assert from "node:assert/strict";
import { once } from "node:events";
import { type AddressInfo, connect, createServer, connect as dial, Socket } from "node:net";
import { Duplex, duplexPair } from "node:stream";
import { test } from "node:test";
import { setTimeout as sleep, setImmediate as turn } from "node:timers/promises";
import tls, { type SecureVersion, type TLSSocket } from "node:tls";
import { until } from "../basics/testing/wait.ts";
import { Authority, type CertificateAndKey } from "../pki/certificates.ts";
import { certificateOf } from "../pki/testing/certificates.ts";
import {
  beforeVerification,
  deferRelease,
  hasPeer,
  isReadError,
  rawSocketOf,
  readAgain,
  setReading,
  shownCertificate,
  streamBeneath,
  tlsServerOn,
} from "./sockets.ts";

/** Both ends of a TCP connection. */
async function tcpPair(pauseOnConnect = true): Promise<{ near: Socket; far: Socket } & Disposable> {
  const server = createServer({ allowHalfOpen: true, pauseOnConnect }).listen(0, "127.0.0.1");
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

test("the stream beneath a TLS socket is the one that it was made on, also when its handshake has failed", async () => {
  const server = tls.createServer(await (await Authority.create("ca")).issue({ cn: "a", usage: "server" }));
  const [near, far] = duplexPair();
  const secured = once(server, "secureConnection");
  server.emit("connection", near);
  const client = tls.connect({ socket: far, rejectUnauthorized: false }).on("error", () => {});
  const [socket] = (await secured) as [TLSSocket];
  assert.equal(streamBeneath(socket), near);
  client.destroy();
  const [broken, babbler] = duplexPair();
  const found = new Promise((resolve) => {
    server.once("tlsClientError", (_error, failed) => resolve(streamBeneath(failed)));
  });
  server.emit("connection", broken);
  babbler.write("GET / HTTP/1.1\r\n\r\n");
  assert.equal(await found, broken);
});

test("a TLS handshake stands still while nothing is read beneath it, and goes on", async () => {
  using it = await tcpPair(false); // a socket that Node has paused begins to read by itself
  const server = tls.createServer(await (await Authority.create("ca")).issue({ cn: "a", usage: "server" }));
  const secured = once(server, "secureConnection");
  server.emit("connection", it.near);
  setReading(it.near, false);
  const client = tls.connect({ socket: it.far, rejectUnauthorized: false }).on("error", () => {});
  await until(() => it.far.bytesWritten > 0);
  for (let turns = 0; turns < 10; turns++) await turn();
  assert.equal(it.near.bytesRead, 0);
  setReading(it.near, true);
  const [socket] = (await secured) as [TLSSocket];
  for (const each of [socket, client]) each.destroy();
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

/** The server's end of a TLS connection whose client shows this certificate, or none. */
async function accepted(version: SecureVersion, shown: Partial<CertificateAndKey>) {
  const authority = await Authority.create("ca");
  const own = await authority.issue({ cn: "server", usage: "server" });
  const server = tls.createServer({ ...own, ca: authority.cert, requestCert: true, rejectUnauthorized: false });
  const net = createServer((raw) => server.emit("connection", raw)).listen(0, "127.0.0.1");
  await once(net, "listening");
  const secured = once(server, "secureConnection");
  const raw = dial((net.address() as AddressInfo).port, "127.0.0.1");
  const versions = { minVersion: version, maxVersion: version };
  const client = tls.connect({ socket: raw, rejectUnauthorized: false, ...versions, ...shown }).on("error", () => {});
  const [socket] = (await secured) as [TLSSocket];
  socket.on("error", () => {});
  const end = (): void => {
    for (const each of [client, socket]) each.destroy();
    net.close();
  };
  return { socket, [Symbol.dispose]: end };
}

for (const version of ["TLSv1.2", "TLSv1.3"] as const) {
  for (const names of [1, 40, 700]) {
    test(`the certificate in a session is the one that was shown: ${version}, ${names} names`, async () => {
      const all = Array.from({ length: names }, (_, at) => `name-${at}.example`);
      const { cert, key } = await (await Authority.create("other")).issue({
        cn: "client",
        usage: "client",
        names: all,
      });
      using it = await accepted(version, { cert, key });
      const shown = shownCertificate(it.socket);
      assert.ok(shown !== undefined);
      assert.ok(shown.equals(it.socket.getPeerCertificate(false).raw));
    });
  }

  test(`without a certificate there is none in the session: ${version}`, async () => {
    using it = await accepted(version, {});
    assert.equal(shownCertificate(it.socket), undefined);
  });
}

test("a session that cannot be read has no certificate", () => {
  const socket = (bytes: Buffer | undefined) => ({ getSession: () => bytes }) as TLSSocket;
  const whole = Buffer.from("300702010104003000", "hex");
  for (const session of [undefined, Buffer.alloc(0), Buffer.from([0x30]), whole, whole.subarray(0, 5)]) {
    assert.equal(shownCertificate(socket(session)), undefined);
  }
  const claims = ["3084000000", "3003a38500", "3004a3030102", "3004a3820100", "2004a3020102", "3004a302010200"];
  for (const hex of claims) assert.equal(shownCertificate(socket(Buffer.from(hex, "hex"))), undefined, hex);
  assert.deepEqual(shownCertificate(socket(Buffer.from("3007020101a3020102", "hex"))), Buffer.from([1, 2]));
});

/** Whether this TLS server accepts the client, which names no server (SNI). */
async function authorizes(server: tls.Server, shown: CertificateAndKey, version: SecureVersion): Promise<boolean> {
  const net = createServer((raw) => server.emit("connection", raw)).listen(0, "127.0.0.1");
  await once(net, "listening");
  const secured = new Promise<TLSSocket>((resolve, reject) =>
    server.once("secureConnection", resolve).once("tlsClientError", reject),
  );
  const { port } = net.address() as AddressInfo;
  const versions = { minVersion: version, maxVersion: version };
  const client = tls.connect({ port, host: "127.0.0.1", rejectUnauthorized: false, ...versions, ...shown });
  client.on("error", () => {});
  const socket = await secured;
  socket.on("error", () => {});
  for (const each of [client, socket]) each.destroy();
  net.close();
  return socket.authorized;
}

for (const version of ["TLSv1.2", "TLSv1.3"] as const) {
  test(`a TLS server uses the context that it was given, with all its options: ${version}`, async () => {
    const root = await certificateOf({ cn: "root" });
    const issuing = await certificateOf({ cn: "issuing", by: root });
    const shown = await certificateOf({ cn: "client", isCa: false, by: issuing });
    const own = await (await Authority.create("ca")).issue({ cn: "server", usage: "server" });
    const partial = { ...own, ca: issuing.cert, allowPartialTrustChain: true };
    const asks = { requestCert: true, rejectUnauthorized: false };
    const context = tls.createSecureContext(partial);
    assert.equal(await authorizes(tlsServerOn(context, asks), shown, version), true);
    assert.equal(await authorizes(tlsServerOn(context, asks), await certificateOf({ cn: "x" }), version), false);
    const dropped = await authorizes(tls.createServer({ ...partial, ...asks }), shown, version);
    assert.equal(dropped, false, "the premise: tls.createServer drops the option");
    const lone = tls.createSecureContext({ ...own, ca: shown.cert, allowPartialTrustChain: true });
    assert.equal(await authorizes(tlsServerOn(lone, asks), shown, version), true, "why leaves are left out");
  });
}
