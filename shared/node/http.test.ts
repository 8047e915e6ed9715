import assert from "node:assert/strict";
import { once } from "node:events";
import { createServer, type IncomingMessage } from "node:http";
import { constants, performServerHandshake, type ServerHttp2Session } from "node:http2";
import { type AddressInfo, connect, createServer as createTcpServer } from "node:net";
import { Duplex } from "node:stream";
import { test } from "node:test";
import { WebSocket, WebSocketServer } from "ws";
import { deferDestroy, feedParser, type TakenData, takeDataListener } from "./http.ts";
import { connectRequest, FLAG, FRAME, FrameReader, frame, PREFACE, settings } from "./testing/http2-frames.ts";

class Source extends Duplex {
  override _read(): void {}

  override _write(_chunk: Buffer, _encoding: string, done: () => void): void {
    done();
  }
}

test("the HTTP parser has read what it was given when the call returns", () => {
  const urls: string[] = [];
  const server = createServer().on("connect", ({ url = "" }: IncomingMessage) => urls.push(url));
  const source = new Source();
  server.emit("connection", source);
  feedParser(source, Buffer.from("CONNECT a:1 HT"));
  assert.deepEqual(urls, []);
  feedParser(source, Buffer.from("TP/1.1\r\nHost: a\r\n\r\n"));
  assert.deepEqual(urls, ["a:1"]);
  source.destroy();
});

/** What an HTTP/2 client is told in GOAWAY, which sends `bytes` behind its preface, until the connection closes. */
async function goawaysFor(bytes: Buffer, onSession: (session: ServerHttp2Session) => void): Promise<number[]> {
  const server = createTcpServer((socket) => {
    const session = performServerHandshake(socket).on("error", () => {});
    deferDestroy(session, socket);
    session.on("stream", (stream) => stream.on("error", () => {}));
    onSession(session);
  });
  await once(server.listen(0, "127.0.0.1"), "listening");
  const client = connect((server.address() as AddressInfo).port, "127.0.0.1").on("error", () => {});
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

/** The server's end of a WebSocket, and its socket. */
async function webSocket() {
  const server = new WebSocketServer({ port: 0, host: "127.0.0.1", perMessageDeflate: false });
  await once(server, "listening");
  const connected = once(server, "connection");
  const client = new WebSocket(`ws://127.0.0.1:${(server.address() as AddressInfo).port}`);
  const [ws, request] = (await connected) as [WebSocket, IncomingMessage];
  if (client.readyState !== WebSocket.OPEN) await once(client, "open");
  const end = (): void => {
    client.terminate();
    server.close();
  };
  return { ws, client, socket: request.socket, [Symbol.dispose]: end };
}

test("the bytes of a WebSocket come to whoever takes ws's place, and reach ws when they are given to it", async () => {
  using it = await webSocket();
  const pieces: Buffer[] = [];
  const taken: TakenData | undefined = takeDataListener(it.socket, (chunk) => pieces.push(chunk));
  assert.ok(taken !== undefined);
  let isTaken = true;
  const message = once(it.ws, "message").then(([data]) => {
    assert.equal(isTaken, false, "ws has read what was not given to it");
    return String(data);
  });
  it.client.send("hello");
  while (Buffer.concat(pieces).length < 11) await once(it.socket, "data");
  isTaken = false;
  taken.toWs(Buffer.concat(pieces));
  assert.equal(await message, "hello");
});

test("what a paused socket holds when it closes does not come to ws", async () => {
  using it = await webSocket();
  const pieces: Buffer[] = [];
  takeDataListener(it.socket, (chunk) => pieces.push(chunk));
  it.ws.on("message", () => assert.fail("ws has read it"));
  it.socket.pause();
  it.client.send("late");
  while (it.socket.readableLength < 10) await new Promise((resolve) => setImmediate(resolve));
  const closed = once(it.ws, "close");
  it.socket.destroy();
  await closed;
  assert.equal(Buffer.concat(pieces).length, 10);
});

test("where ws's listener is not the only one, nothing is taken", async () => {
  using it = await webSocket();
  it.socket.on("data", () => {});
  assert.equal(
    takeDataListener(it.socket, () => {}),
    undefined,
  );
  const message = once(it.ws, "message");
  it.client.send("hello");
  assert.equal(String((await message)[0]), "hello");
});
