import assert from "node:assert/strict";
import type { Socket } from "node:net";
import { duplexPair } from "node:stream";
import { test } from "node:test";
import fc from "fast-check";
import { connectByNode } from "./testing/connect-by-node.ts";
import { parseUsualConnect, readUsualConnect } from "./usual-connect.ts";

const usual = (text: string) => parseUsualConnect(Buffer.from(text, "latin1"));
const byNode = (text: string) => connectByNode(Buffer.from(text, "latin1"));

const USUAL: readonly string[] = [
  "CONNECT 10.0.0.1:10250 HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
  "CONNECT [fd00::1]:443 HTTP/1.1\r\nHost: [fd00::1]:443\r\nUser-Agent: Go-http-client/1.1\r\n\r\n",
  "CONNECT a_b-c.example:1 HTTP/1.1\r\n\r\n",
  "CONNECT a:1 HTTP/1.1\r\nHOST: two\r\nproxy-authorization: Bearer a.b-c==\r\n\r\n",
  `CONNECT a:1 HTTP/1.1\r\nUser-Agent: ${"x".repeat(962)}\r\n\r\n`,
  "CONNECT a HTTP/1.1\r\nUser-Agent: curl (some  words)\r\n\r\n",
  "CONNECT a:1 HTTP/1.1\r\nTraceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01\r\n\r\n",
];

for (const text of USUAL) {
  test(`a usual CONNECT is read as Node's parser reads it: ${JSON.stringify(text.slice(0, 80))}`, () => {
    const own = usual(text);
    assert.ok(own !== undefined);
    assert.deepEqual(own, byNode(text));
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
  "CONNECT a:1 HTTP/1.1\r\nhost: one\r\nHOST: two\r\n\r\n",
  "CONNECT a:1 HTTP/1.1\r\nProxy-Authorization: Basic one\r\nProxy-Authorization: Basic two\r\n\r\n",
  "CONNECT a:1 HTTP/1.1\r\nTraceparent: one\r\ntraceparent: two\r\n\r\n",
  `CONNECT a:1 HTTP/1.1\r\nUser-Agent: ${"x".repeat(963)}\r\n\r\n`,
];

for (const text of UNUSUAL) {
  test(`anything else is left to Node's parser: ${JSON.stringify(text.slice(0, 80))}`, () => {
    assert.equal(usual(text), undefined);
  });
}

const assertSame = (text: string): void => {
  const own = usual(text);
  if (own !== undefined) assert.deepEqual(own, byNode(text), JSON.stringify(text));
};

test("any fields that are read are read as Node's parser reads them", () => {
  const printable = fc.string({ unit: fc.integer({ min: 0x20, max: 0x7e }).map((byte) => String.fromCharCode(byte)) });
  const name = fc.constantFrom("Host", "HOST", "user-agent", "Proxy-Authorization", "traceparent", "Traceparent");
  const target = fc.string({ unit: fc.constantFrom(..."aZ09_.:[]-"), minLength: 1 });
  fc.assert(
    fc.property(target, fc.array(fc.tuple(name, printable), { maxLength: 4 }), (host, fields) => {
      const lines = fields.map(([key, value]) => `${key}: ${value}\r\n`);
      assertSame(`CONNECT ${host} HTTP/1.1\r\n${lines.join("")}\r\n`);
    }),
    { numRuns: 500 },
  );
});

test("a header with other bytes somewhere is read as Node's parser reads it, or left to it", () => {
  const bytes = fc.string({ unit: fc.constantFrom(" ", "\t", "\r", "\n", ":", "\0", ",", "a", "\xe4"), maxLength: 3 });
  const change = fc.record({ header: fc.constantFrom(...USUAL), at: fc.nat(120), cut: fc.nat(2), bytes });
  fc.assert(
    fc.property(change, ({ header, at, cut, bytes }) => {
      assertSame(header.slice(0, at) + bytes + header.slice(at + cut));
    }),
    { numRuns: 500 },
  );
});

/** The fate of a connection on which these pieces come, each in a turn of its own. */
async function readOf(pieces: readonly string[]) {
  const [near, far] = duplexPair();
  let read: string | undefined;
  near.pause(); // as a socket is whose first bytes were looked at
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
