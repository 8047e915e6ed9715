import assert from "node:assert/strict";
import { createServer, type IncomingMessage } from "node:http";
import type { Socket } from "node:net";
import { duplexPair } from "node:stream";
import { test } from "node:test";
import fc from "fast-check";
import { type ConnectHeader, parseUsualConnect, readUsualConnect } from "./usual-connect.ts";

const usual = (text: string) => parseUsualConnect(Buffer.from(text, "latin1"));

/** The request as Node's own parser reads it; `undefined`: it refuses the bytes, or finds no CONNECT. */
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

function fieldsOf({ url, headers, rawHeaders, httpVersionMajor }: ConnectHeader): ConnectHeader {
  return { url, headers: { ...headers }, rawHeaders, httpVersionMajor };
}

const USUAL: readonly string[] = [
  "CONNECT 10.0.0.1:10250 HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
  "CONNECT [fd00::1]:443 HTTP/1.1\r\nHost: [fd00::1]:443\r\nUser-Agent: Go-http-client/1.1\r\n\r\n",
  "CONNECT a_b-c.example:1 HTTP/1.1\r\n\r\n",
  "CONNECT a:1 HTTP/1.1\r\nhost: one\r\nHOST: two\r\nproxy-authorization: Bearer a.b-c==\r\n\r\n",
  "CONNECT a:1 HTTP/1.1\r\nProxy-Authorization: Basic one\r\nProxy-Authorization: Basic two\r\n\r\n",
  "CONNECT a HTTP/1.1\r\nUser-Agent: curl (some  words)\r\n\r\n",
  "CONNECT a:1 HTTP/1.1\r\nTraceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01\r\n\r\n",
];

for (const text of USUAL) {
  test(`a usual CONNECT is read as Node's parser reads it: ${JSON.stringify(text)}`, async () => {
    const [own, byNode] = [usual(text), await readByNode(text)];
    assert.ok(own !== undefined && byNode !== undefined);
    assert.deepEqual(fieldsOf(own), fieldsOf(byNode));
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
  `CONNECT a:1 HTTP/1.1\r\nUser-Agent: ${"x".repeat(1_000)}\r\n\r\n`,
];

for (const text of UNUSUAL) {
  test(`anything else is left to Node's parser: ${JSON.stringify(text.slice(0, 80))}`, () => {
    assert.equal(usual(text), undefined);
  });
}

test("a header with other bytes somewhere is read as Node's parser reads it, or left to it", async () => {
  const bytes = fc.string({ unit: fc.constantFrom(" ", "\t", "\r", "\n", ":", "\0", ",", "a", "\xe4"), maxLength: 3 });
  const change = fc.record({ header: fc.constantFrom(...USUAL), at: fc.nat(120), cut: fc.nat(2), bytes });
  await fc.assert(
    fc.asyncProperty(change, async ({ header, at, cut, bytes }) => {
      const text = header.slice(0, at) + bytes + header.slice(at + cut);
      const own = usual(text);
      if (own === undefined) return;
      const byNode = await readByNode(text);
      assert.ok(byNode !== undefined, JSON.stringify(text));
      assert.deepEqual(fieldsOf(own), fieldsOf(byNode));
    }),
    { numRuns: 500 },
  );
});

/** The fate of a connection on which these pieces come, each in a turn of its own. */
async function readOf(pieces: readonly string[]) {
  const [near, far] = duplexPair();
  let read: string | undefined;
  readUsualConnect(
    near as Socket,
    ({ url }) => {
      read = url;
    },
    () => {
      read = "by the other reader";
    },
  );
  for (const piece of pieces) {
    far.write(piece, "latin1");
    await new Promise((done) => setImmediate(done));
  }
  let unread = "";
  // Node.js 26 returns one chunk for each read().
  for (let rest: Buffer | null = near.read(); rest !== null; rest = near.read()) unread += rest.toString("latin1");
  return { read, unread, listeners: near.listenerCount("data") + near.listenerCount("end") };
}

const CONNECT = "CONNECT a:1 HTTP/1.1\r\nHost: a:1\r\n\r\n";

test("everything behind a usual CONNECT is unread, in the same packet or later", async () => {
  for (const pieces of [[`${CONNECT}early`], [CONNECT, "early"]]) {
    assert.deepEqual(await readOf(pieces), { read: "a:1", unread: "early", listeners: 0 });
  }
});

test("of any other beginning the other reader gets every byte", async () => {
  for (const pieces of [
    [...CONNECT],
    ["GET / HTTP/1.1\r\n\r\n"],
    [`\r\n${CONNECT}`],
    ["PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"],
  ]) {
    assert.deepEqual(await readOf(pieces), { read: "by the other reader", unread: pieces.join(""), listeners: 0 });
  }
});

test("a client that ends its side without a byte gets the end of the other one", async () => {
  const [near, far] = duplexPair();
  const unasked = () => assert.fail("there is no request");
  readUsualConnect(near as Socket, unasked, unasked);
  far.resume().end();
  await new Promise((resolve) => far.once("end", resolve));
});
