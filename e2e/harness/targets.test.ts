import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { once } from "node:events";
import { connect as connectHttp2 } from "node:http2";
import { get as getHttps } from "node:https";
import { connect, type Socket } from "node:net";
import { text } from "node:stream/consumers";
import { test } from "node:test";
import { WebSocket } from "ws";
import { Payload } from "./payload.ts";
import { blackHoleTarget } from "./targets/absent.ts";
import { resettingTarget, sinkTarget, slowTarget, sourceTarget } from "./targets/plain.ts";
import { http2Target, httpsTarget, httpTarget, webSocketTarget } from "./targets/web.ts";
import { refusedTarget } from "./targets.ts";
import { waitFor } from "./wait.ts";

function dial(target: { host: string; port: number }): Socket {
  const socket = connect({ host: target.host, port: target.port, allowHalfOpen: true });
  socket.on("error", () => {});
  return socket;
}

test("a sink counts and digests what it takes, and answers FIN with FIN", async () => {
  await using sink = await sinkTarget();
  const socket = dial(sink);
  const payload = new Payload(5);
  for (let offset = 0; offset < 3_000_000; ) {
    const chunk = payload.at(offset, Math.min(100_000, 3_000_000 - offset));
    socket.write(chunk);
    offset += chunk.length;
  }
  socket.end();
  socket.resume();
  await once(socket, "end");
  const [connection] = sink.connections;
  assert.equal(await connection?.ended, "fin");
  assert.equal(connection?.bytes, 3_000_000);
  assert.equal(sink.bytes, 3_000_000);
  assert.equal(connection?.sha256(), payload.sha256(3_000_000));
});

test("a source of N bytes sends exactly these and ends; an endless one waits for its reader", async () => {
  await using source = await sourceTarget({ bytes: 2_500_000, seed: 2 });
  const hash = createHash("sha256");
  const socket = dial(source);
  socket.on("data", (chunk) => hash.update(chunk));
  await once(socket, "end");
  assert.equal(hash.digest("hex"), new Payload(2).sha256(2_500_000));
  socket.destroy();
  await using endless = await sourceTarget();
  const stalled = dial(endless);
  stalled.pause();
  await waitFor(() => [...endless.sockets()].some((each) => each.writableNeedDrain));
  for (const each of endless.sockets()) assert.ok(each.writableLength < 1_000_000);
  stalled.destroy();
});

test("a slow target takes its time in both directions", async () => {
  await using slow = await slowTarget({ bytesPerSecond: 50_000 });
  const socket = dial(slow);
  const started = performance.now();
  socket.end(Buffer.alloc(10_000));
  let bytes = 0;
  socket.on("data", (chunk) => {
    bytes += chunk.length;
  });
  await once(socket, "end");
  assert.equal(bytes, 10_000);
  assert.ok(performance.now() - started > 150);
});

test("a target resets at once or after so many bytes", async () => {
  await using atOnce = await resettingTarget();
  const [first] = await once(dial(atOnce), "error");
  assert.equal((first as NodeJS.ErrnoException).code, "ECONNRESET");
  await using afterSent = await resettingTarget({ sent: 10 });
  const socket = dial(afterSent).resume();
  const [second] = await once(socket, "error");
  assert.equal((second as NodeJS.ErrnoException).code, "ECONNRESET");
});

test("a black hole lets a dial neither succeed nor fail", async () => {
  await using hole = await blackHoleTarget();
  const socket = dial(hole);
  const outcome = await Promise.race([
    once(socket, "connect").then(() => "connected"),
    once(socket, "close").then(() => "closed"),
    new Promise((resolve) => setTimeout(() => resolve("silence"), 1500)),
  ]);
  assert.equal(outcome, "silence");
  socket.destroy();
});

test("a refused target refuses", async () => {
  await using refused = await refusedTarget();
  const [error] = await once(dial(refused), "error");
  assert.equal((error as NodeJS.ErrnoException).code, "ECONNREFUSED");
});

test("HTTP, HTTPS and HTTP/2 targets answer, with a certificate that verifies", async () => {
  await using http = await httpTarget();
  assert.equal(await (await fetch(`http://${http.address}/`)).text(), "hello from the target\n");
  await using https = await httpsTarget();
  const response = await new Promise<NodeJS.ReadableStream>((resolve, reject) => {
    getHttps(`https://${https.address}/bytes/1000`, { ca: https.certificate.cert }, resolve).on("error", reject);
  });
  assert.equal((await text(response)).length > 0, true);
  await using http2 = await http2Target();
  const session = connectHttp2(`https://${http2.address}`, { ca: http2.certificate.cert });
  const stream = session.request({ ":path": "/" });
  assert.equal(await text(stream), "hello from the target\n");
  session.destroy();
});

test("a WebSocket target echoes messages", async () => {
  await using target = await webSocketTarget();
  const socket = new WebSocket(`ws://${target.address}`);
  await once(socket, "open");
  socket.send("hello");
  const [message] = await once(socket, "message");
  assert.equal(String(message), "hello");
  socket.terminate();
});
