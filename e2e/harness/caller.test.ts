import assert from "node:assert/strict";
import { test } from "node:test";
import { createServer } from "node:tls";
import { connectThrough, parseAnswer } from "./caller.ts";
import { selfSigned } from "./certificate.ts";
import { listenOnLoopback, TcpTarget, tcpTarget } from "./targets/tcp.ts";

test("a CONNECT is sent as kube-apiserver sends it, early bytes in the same write", async () => {
  let seen = "";
  await using listener = await tcpTarget((socket) => {
    socket.on("data", (chunk) => {
      seen += chunk;
      if (seen.endsWith("early")) socket.write("HTTP/1.1 200 Connection Established\r\n\r\n");
      if (seen.endsWith("?")) socket.end("later");
    });
  });
  await using connection = await connectThrough(listener, "10.0.0.1:10250", { early: "early" });
  assert.equal(seen, "CONNECT 10.0.0.1:10250 HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\nearly");
  assert.equal(connection.status, 200);
  assert.equal(connection.reason, "Connection Established");
  assert.equal(connection.head.length, 0);
  await connection.send("?");
  assert.equal(await connection.read(), "later");
  assert.equal(await connection.read(), "");
});

test("bytes in the read of the answer are reported, and are not lost to the reader", async () => {
  await using listener = await tcpTarget((socket) => {
    socket.on("data", () => socket.end("HTTP/1.1 502 no route\r\nProxy-Status: culvert\r\n\r\nbody of it"));
  });
  await using connection = await connectThrough(listener, "x:1");
  assert.equal(connection.status, 502);
  assert.equal(connection.reason, "no route");
  assert.equal(connection.headers.get("proxy-status"), "culvert");
  assert.equal(connection.head.toString(), "body of it");
  assert.equal((await connection.readBytes(4)).toString(), "body");
  assert.equal(await connection.readAll(), " of it");
});

test("a CONNECT over TLS presents its certificate, and half-close works in both directions", async () => {
  const certificate = selfSigned();
  let name = "";
  const server = createServer({ ...certificate, ca: certificate.cert, requestCert: true, allowHalfOpen: true });
  await using listener = new TcpTarget(server);
  server.on("secureConnection", (socket) => {
    listener.track(socket);
    name = String(socket.getPeerCertificate().subject?.CN);
    socket.once("data", () => socket.write("HTTP/1.1 200 OK\r\n\r\n"));
    socket.on("end", () => socket.end("after your FIN"));
  });
  await listenOnLoopback(server);
  const tls = { ca: certificate.cert, ...certificate };
  await using connection = await connectThrough({ host: listener.host, port: listener.port, tls }, "x:1");
  assert.equal(connection.status, 200);
  assert.equal(name, "localhost");
  connection.end();
  assert.equal(await connection.readAll(), "after your FIN");
});

test("a listener that closes, or is silent past the deadline, rejects", async () => {
  await using closing = await tcpTarget((socket) => socket.end());
  await assert.rejects(connectThrough(closing, "x:1"), /closed without an answer/);
  await using silent = await tcpTarget((socket) => socket.resume());
  await assert.rejects(connectThrough(silent, "x:1", { deadlineMs: 50 }), /not within 50 ms/);
});

test("an answer that is not HTTP is an error", () => {
  assert.throws(() => parseAnswer("SSH-2.0-OpenSSH"), /not an HTTP answer/);
  assert.throws(() => parseAnswer("HTTP/1.1 200 OK\r\nnonsense"), /not a header field/);
});
