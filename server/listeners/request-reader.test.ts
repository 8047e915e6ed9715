import assert from "node:assert/strict";
import { createServer, type IncomingMessage } from "node:http";
import { duplexPair } from "node:stream";
import { test } from "node:test";
import { readUsualConnect } from "./request-reader.ts";

const usual = (text: string) => readUsualConnect(Buffer.from(text, "latin1"));

/** What Node's own parser reads; `undefined`: it refuses the bytes, or finds no CONNECT. */
async function readByNode(text: string): Promise<IncomingMessage | undefined> {
  const server = createServer({ requireHostHeader: false });
  const [near, far] = duplexPair();
  const read = new Promise<IncomingMessage | undefined>((resolve) => {
    server.on("connect", (request: IncomingMessage) => resolve(request));
    server.on("request", () => resolve(undefined));
    server.on("clientError", () => resolve(undefined));
  });
  server.emit("connection", near);
  far.end(text, "latin1");
  const request = await read;
  near.destroy();
  return request;
}

const USUAL: readonly string[] = [
  "CONNECT 10.0.0.1:10250 HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
  "CONNECT [fd00::1]:443 HTTP/1.1\r\nHost: [fd00::1]:443\r\nUser-Agent: Go-http-client/1.1\r\n\r\n",
  "CONNECT a_b-c.example:1 HTTP/1.1\r\n\r\n",
  "CONNECT a:1 HTTP/1.1\r\nhost: one\r\nHOST: two\r\nproxy-authorization: Bearer a.b-c==\r\n\r\n",
  "CONNECT a:1 HTTP/1.1\r\nProxy-Authorization: Basic one\r\nProxy-Authorization: Basic two\r\n\r\n",
  "CONNECT a HTTP/1.1\r\nUser-Agent: curl (some  words)\r\n\r\n",
];

for (const text of USUAL) {
  test(`a usual CONNECT is read as Node's parser reads it: ${JSON.stringify(text)}`, async () => {
    const [own, byNode] = [usual(text), await readByNode(text)];
    assert.ok(own !== undefined && byNode !== undefined);
    assert.deepEqual(own, {
      ...{ url: byNode.url, headers: { ...byNode.headers }, rawHeaders: byNode.rawHeaders },
      ...{ httpVersion: byNode.httpVersion, httpVersionMajor: byNode.httpVersionMajor },
    });
  });
}

/** Bytes of which one of two parsers could make something else, and those that need Node's parser. */
const UNUSUAL: readonly string[] = [
  "GET / HTTP/1.1\r\n\r\n",
  "connect a:1 HTTP/1.1\r\n\r\n",
  "CONNECT a:1 HTTP/1.0\r\n\r\n",
  "CONNECT  a:1 HTTP/1.1\r\n\r\n",
  "CONNECT a:1 HTTP/1.1 \r\n\r\n",
  "CONNECT u@a:1 HTTP/1.1\r\n\r\n",
  "CONNECT a:1/b HTTP/1.1\r\n\r\n",
  "CONNECT a%00:1 HTTP/1.1\r\n\r\n",
  "CONNECT \xe4:1 HTTP/1.1\r\n\r\n",
  "\r\nCONNECT a:1 HTTP/1.1\r\n\r\n",
  "CONNECT a:1 HTTP/1.1\n\n",
  "CONNECT a:1 HTTP/1.1\r\nHost: b\n\r\n",
  "CONNECT a:1 HTTP/1.1\r\nHost: b\rx\r\n\r\n",
  "CONNECT a:1 HTTP/1.1\r\nHost: b\r\n folded\r\n\r\n",
  "CONNECT a:1 HTTP/1.1\r\nHost : b\r\n\r\n",
  "CONNECT a:1 HTTP/1.1\r\nHost: b \r\n\r\n",
  "CONNECT a:1 HTTP/1.1\r\nHost: b\0\r\n\r\n",
  "CONNECT a:1 HTTP/1.1\r\nHost: \xe4\r\n\r\n",
  "CONNECT a:1 HTTP/1.1\r\nHost:\r\n\r\n",
  "CONNECT a:1 HTTP/1.1\r\nContent-Length: 5\r\n\r\n",
  "CONNECT a:1 HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n",
  "CONNECT a:1 HTTP/1.1\r\nConnection: upgrade\r\nUpgrade: h2c\r\n\r\n",
  "CONNECT a:1 HTTP/1.1\r\nHost: b\r\n",
  "CONNECT a:1 HTTP/1.1\r\n\r\n\r\n",
  `CONNECT a:1 HTTP/1.1\r\nUser-Agent: ${"x".repeat(4_096)}\r\n\r\n`,
];

for (const text of UNUSUAL) {
  test(`anything else is left to Node's parser: ${JSON.stringify(text.slice(0, 80))}`, () => {
    assert.equal(usual(text), undefined);
  });
}
