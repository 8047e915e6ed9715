import assert from "node:assert/strict";
import { once } from "node:events";
import { createServer, type IncomingMessage } from "node:http";
import type { AddressInfo } from "node:net";
import { Duplex } from "node:stream";
import { test } from "node:test";
import { WebSocket, WebSocketServer } from "ws";
import { feedParser, type TakenData, takeDataListener } from "./http.ts";

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
