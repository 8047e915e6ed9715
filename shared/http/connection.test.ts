import assert from "node:assert/strict";
import { once } from "node:events";
import net from "node:net";
import { type TestContext, test } from "node:test";
import tls from "node:tls";
import fc from "fast-check";
import { listening } from "../basics/testing/wait.ts";
import { HeaderEnd, peerAction } from "./connection.ts";

/** The error of node:tls when the peer ends the connection at the beginning of the handshake. */
async function inHandshake(t: TestContext, end: (socket: net.Socket) => void): Promise<Error> {
  const server = net.createServer((socket) => socket.on("error", () => {}).once("data", () => end(socket)));
  const port = await listening(t, server);
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

for (const [what, header, rest] of [
  ["a request and the next one", "GET / HTTP/1.1\r\nHost: x\r\n\r\n", "GET / HTTP/1.1\r\n\r\n"],
  ["a request of one line", "GET / HTTP/1.1\r\n\r\n", "x"],
  ["bare line feeds", "GET / HTTP/1.1\nHost: x\n\n", "GET / HTTP/1.1\n\n"],
  ["a line feed, then CR LF", "GET / HTTP/1.1\n\r\n", "more"],
  ["empty lines in front", "\r\n\r\n\nGET / HTTP/1.1\r\n\r\n", "more"],
  ["nothing behind it", "CONNECT a:1 HTTP/1.1\r\n\r\n", ""],
] as const) {
  test(`${what}: the header ends with the first empty line behind a request, in one piece or in bytes`, () => {
    const bytes = Buffer.from(header + rest);
    const whole = new HeaderEnd();
    assert.equal(whole.push(bytes), header.length);
    assert.equal(whole.hasEnded, true);
    const split = new HeaderEnd();
    let used = 0;
    for (const byte of bytes) {
      if (split.hasEnded) break;
      used += split.push(Buffer.from([byte]));
    }
    assert.deepEqual([used, split.hasEnded], [header.length, true]);
  });
}

test("the end is the same however the bytes are cut into pieces", () => {
  const line = fc.constantFrom("GET / HTTP/1.1", "Host: x", "", "\r", "a\rb");
  const text = fc.array(fc.tuple(line, fc.constantFrom("\r\n", "\n")), { maxLength: 12 });
  fc.assert(
    fc.property(text, fc.array(fc.nat(60), { maxLength: 5 }), (lines, cuts) => {
      const bytes = Buffer.from(lines.flat().join(""));
      const whole = new HeaderEnd();
      const expected = whole.push(bytes);
      const split = new HeaderEnd();
      let used = 0;
      const places = [...new Set(cuts.map((cut) => cut % (bytes.length + 1)))].sort((a, b) => a - b);
      for (const [index, from] of [0, ...places].entries()) {
        if (split.hasEnded) break;
        used += split.push(bytes.subarray(from, places[index] ?? bytes.length));
      }
      assert.deepEqual([used, split.hasEnded], [expected, whole.hasEnded]);
    }),
  );
});
