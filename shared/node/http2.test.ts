import assert from "node:assert/strict";
import { EventEmitter, once } from "node:events";
import { connect, constants, createServer, type ServerHttp2Session } from "node:http2";
import { type AddressInfo, createServer as createTcpServer, connect as dial } from "node:net";
import { buffer } from "node:stream/consumers";
import { test } from "node:test";
import { listening } from "../basics/testing/wait.ts";
import { onPipelinedPing, serverSession, writeStringsAsBuffers } from "./http2.ts";
import { connectRequest, FLAG, FRAME, FrameReader, frame, PREFACE, settings } from "./testing/http2-frames.ts";

test("strings that are written together with buffers arrive as they are", async (t) => {
  const server = createServer();
  const port = await listening(t, server);
  const session = connect(`http://127.0.0.1:${port}`);
  t.after(() => session.destroy());
  const taken = once(server, "stream").then(async ([stream]) => {
    const bytes = await buffer(stream);
    stream.respond({ ":status": 200 }, { endStream: true });
    return bytes;
  });
  const stream = session.request({ ":method": "POST" });
  writeStringsAsBuffers(stream);
  const pieces = Array.from({ length: 300 }, (_, at) => `piece ${at} `.padEnd(1_000, "é"));
  stream.cork();
  for (const piece of pieces) {
    stream.write(piece, "latin1");
    stream.write(Buffer.from("|"));
  }
  stream.uncork();
  let isWritten = false;
  stream.write("the end", () => (isWritten = true));
  stream.end();
  assert.equal((await taken).toString("latin1"), `${pieces.map((piece) => `${piece}|`).join("")}the end`);
  assert.equal(isWritten, true);
});

test("only PINGs beyond the first of a turn are charged", async () => {
  const session = new EventEmitter() as ServerHttp2Session;
  let charged = 0;
  onPipelinedPing(session, () => charged++);
  const expected = [0, 2, 2];
  for (const pings of [1, 3, 1]) {
    for (let sent = 0; sent < pings; sent++) session.emit("ping");
    await new Promise((resolve) => setImmediate(resolve));
    assert.equal(charged, expected.shift());
  }
});

/** The GOAWAYs that an HTTP/2 client gets until its connection closes, if it sends `bytes` behind its preface. */
async function goawaysFor(bytes: Buffer, onSession: (session: ServerHttp2Session) => void): Promise<number[]> {
  const server = createTcpServer((socket) => {
    const session = serverSession(socket, socket, {}).on("error", () => {});
    session.on("stream", (stream) => stream.on("error", () => {}));
    onSession(session);
  });
  await once(server.listen(0, "127.0.0.1"), "listening");
  const client = dial((server.address() as AddressInfo).port, "127.0.0.1").on("error", () => {});
  client.write(Buffer.concat([PREFACE, settings(), bytes]));
  const reader = new FrameReader();
  const codes: number[] = [];
  client.on("data", (chunk) => {
    for (const { type, payload } of reader.push(chunk)) if (type === FRAME.goaway) codes.push(payload.readUInt32BE(4));
  });
  await once(client, "close");
  server.close();
  return codes;
}

/** A stream that is opened and ended in the same read. */
const OPENED_AND_ENDED = Buffer.concat([
  connectRequest(3, "a:1"),
  frame({ type: FRAME.data, flags: FLAG.endStream, stream: 3 }),
]);

test("an HTTP/2 session may be destroyed while frames of the same read are still to come", async () => {
  const { NGHTTP2_ENHANCE_YOUR_CALM: code } = constants;
  const bytes = Buffer.concat([connectRequest(1, "a:1"), OPENED_AND_ENDED]);
  const destroy = (session: ServerHttp2Session) => session.on("stream", () => session.destroy(new Error(), code));
  assert.deepEqual(await goawaysFor(bytes, destroy), [code]);
});

test("a peer may say GOAWAY with an error, and open a stream behind it", async () => {
  const goaway = frame({ type: FRAME.goaway, payload: Buffer.from([0, 0, 0, 0, 0, 0, 0, 1]) });
  await goawaysFor(Buffer.concat([goaway, OPENED_AND_ENDED]), () => {});
});
