import assert from "node:assert/strict";
import type { IncomingMessage } from "node:http";
import type { Socket } from "node:net";
import { duplexPair } from "node:stream";
import { test } from "node:test";
import { deferred } from "../basics/promises.ts";
import { FirstRequest, headerParser } from "./first-request.ts";
import { IncomingConnection } from "./incoming-connection.ts";

/** The report of a port's parser about a client that sends these pieces, each in a turn of its own. */
async function reported(pieces: readonly string[], { end = false } = {}) {
  const [near, far] = duplexPair();
  const connection = new IncomingConnection(near as Socket);
  const { promise, resolve } = deferred<{ how: string; request?: IncomingMessage; code?: string | undefined }>();
  const handled = (how: string) => (request: IncomingMessage) => resolve({ how, request });
  const parser = headerParser(1_024, {
    ...{ onConnect: handled("connect"), onUpgrade: handled("upgrade"), onRequest: handled("request") },
    onHttp2: () => resolve({ how: "http2" }),
    onClientError: ({ code }) => resolve({ how: "error", code }),
  });
  new FirstRequest(connection, parser).begin();
  for (const piece of pieces) {
    far.write(piece, "latin1");
    await new Promise((done) => setImmediate(done));
  }
  if (end) far.end();
  const result = await promise;
  const unread = (): string => {
    let text = "";
    // Node.js 26 returns one chunk for each read().
    for (let rest: Buffer | null = near.read(); rest !== null; rest = near.read()) text += rest.toString("latin1");
    return text;
  };
  return { ...result, connection, unread };
}

const UPGRADE = "GET /a HTTP/1.1\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n";

for (const [how, request] of [
  ["connect", "CONNECT a:1 HTTP/1.1\r\n\r\n"],
  ["upgrade", UPGRADE],
  ["request", "POST /a HTTP/1.1\r\nContent-Length: 4\r\nExpect: 100-continue\r\n\r\n"],
] as const) {
  test(`the handler gets one ${how} and the open connection, in which everything behind the header is unread`, async () => {
    const rest = "GET /b HTTP/1.1\r\n\r\n";
    for (const pieces of [[request + rest], [...request, rest]]) {
      const result = await reported(pieces);
      assert.equal(result.how, how);
      assert.equal(result.unread(), rest);
      assert.equal(result.connection.socket.destroyed, false);
      result.connection.socket.destroy();
    }
  });
}

test("the connection preface of HTTP/2 is reported as such and stays unread, whole or in pieces", async () => {
  const preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
  for (const pieces of [[preface], [...preface]]) {
    const { how, unread } = await reported(pieces);
    assert.deepEqual([how, unread()], ["http2", preface]);
  }
});

for (const [what, pieces, code] of [
  ["no HTTP", ["\x16\x03\x01\r\n\r\n"], "HPE_INVALID_METHOD"],
  ["a header that is too large", [`GET / HTTP/1.1\r\nX: ${"y".repeat(1_024)}\r\n\r\n`], "HPE_HEADER_OVERFLOW"],
  ["half a header and an end", ["GET / HTTP/1.1\r\nX: y"], "HPE_INVALID_EOF_STATE"],
] as const) {
  test(`${what} is an error of the client`, async () => {
    const result = await reported(pieces, { end: true });
    assert.deepEqual([result.how, result.code], ["error", code]);
  });
}

test("a client that ends its side without a byte gets the end of the other one", async () => {
  const [near, far] = duplexPair();
  const connection = new IncomingConnection(near as Socket);
  const unasked = () => assert.fail("there is no request");
  const parser = headerParser(1_024, {
    ...{ onConnect: unasked, onUpgrade: unasked, onRequest: unasked, onHttp2: unasked, onClientError: unasked },
  });
  new FirstRequest(connection, parser).begin();
  far.resume().end();
  await new Promise((resolve) => far.once("end", resolve));
});
