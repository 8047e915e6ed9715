import assert from "node:assert/strict";
import { EventEmitter } from "node:events";
import type { Server } from "node:http";
import type { Socket } from "node:net";
import { Duplex } from "node:stream";
import { test } from "node:test";
import type { FirstRequest } from "../listen/first-request.ts";
import {
  AdminConnections,
  ANSWER_MS,
  MAX_CONNECTIONS,
  maxConnections,
  REQUEST_MS,
  readBody,
  readRequest,
} from "./connections.ts";

function connectionFrom(remoteAddress: string): Socket {
  const connection = new Duplex({ read() {}, write: (_chunk, _encoding, done) => done() });
  return Object.assign(connection, { remoteAddress }) as unknown as Socket;
}

test("the oldest connection of the network that has most makes room, and the newcomer gets in", () => {
  let dropped = 0;
  const connections = new AdminConnections({ max: 4, onConnection: () => {}, onDropped: () => dropped++ });
  const probe = connectionFrom("10.0.0.1");
  connections.add(probe);
  // Of one IPv6 network, and of one IPv4 address as both kinds of socket write it.
  const flood = ["2001:db8::1", "2001:db8::2", "2001:db8::3", "2001:db8::4"].map(connectionFrom);
  for (const one of flood) connections.add(one);
  assert.deepEqual(
    flood.map(({ destroyed }) => destroyed),
    [true, false, false, false],
  );
  const second = connectionFrom("::ffff:10.0.0.2");
  connections.add(second);
  assert.deepEqual([probe.destroyed, second.destroyed, flood[1]?.destroyed], [false, false, true]);
  assert.deepEqual([connections.size, dropped], [4, 2]);
  connections.destroyAll();
  assert.ok(probe.destroyed && second.destroyed);
});

test("of a small limit of open files they are a sixteenth, and always a few", () => {
  const table = [undefined, 1_048_576, 4_096, 1_024, 200, 20].map((limit) =>
    maxConnections(limit ?? Number.POSITIVE_INFINITY),
  );
  assert.deepEqual(table, [MAX_CONNECTIONS, 256, 256, 64, 12, 4]);
});

/** A connection that takes what is written when `drain` is called. */
class Connection extends Duplex {
  #done: (() => void) | undefined;
  written = "";

  override _read(): void {}

  override _write(chunk: Buffer, _encoding: string, done: () => void): void {
    this.written += String(chunk);
    this.#done = done;
  }

  drain(): void {
    this.#done?.();
  }
}

/** Resolves when what is on its way in streams has arrived. */
function settled(): Promise<void> {
  return new Promise((resolve) => setImmediate(() => setImmediate(resolve)));
}

/** A connection whose request is read for a parser that reports nothing by itself. */
function opened(): { connection: Connection; request: FirstRequest; read: () => string } {
  const connection = new Connection();
  const request = readRequest(connection as unknown as Socket, new EventEmitter() as Server);
  let read = "";
  request.on("data", (chunk: Buffer) => {
    read += String(chunk);
  });
  return { connection, request, read: () => read };
}

test("a request that is not whole in time is answered with 408 and cut, however it drips", async (t) => {
  t.mock.timers.enable({ apis: ["setTimeout"] });
  for (const [first, ...more] of [["GET / HT", "TP/1.1\r\nX: ", "y"], ["\r\n"]]) {
    const { connection, read } = opened();
    connection.push(first);
    for (const piece of more) {
      t.mock.timers.tick(REQUEST_MS / 4);
      await settled();
      connection.push(piece);
    }
    t.mock.timers.tick(REQUEST_MS - (more.length * REQUEST_MS) / 4 - 1);
    await settled();
    assert.deepEqual([read(), connection.written, connection.destroyed], [[first, ...more].join(""), "", false]);
    t.mock.timers.tick(1);
    await settled();
    assert.match(
      connection.written,
      /^HTTP\/1\.1 408 Request Timeout\r\n[\s\S]*\nthe request did not arrive in time\n$/,
    );
    assert.equal(connection.destroyed, false, "it may still be on its way");
    t.mock.timers.tick(1_000);
    assert.ok(connection.destroyed, "whether the answer was read or not");
  }
});

test("a body has the deadline of its request, and the answer has its own from the last byte on", async (t) => {
  t.mock.timers.enable({ apis: ["setTimeout"] });
  for (const rest of ["", "234"]) {
    const { connection, request } = opened();
    request.once("data", () => readBody(request, 4));
    connection.push("POST / HTTP/1.1\r\n\r\n");
    await settled();
    connection.push("1");
    t.mock.timers.tick(REQUEST_MS - 1);
    await settled();
    if (rest !== "") connection.push(rest);
    await settled();
    t.mock.timers.tick(ANSWER_MS - 1);
    await settled();
    assert.match(connection.written, rest === "" ? /^HTTP\/1\.1 408 / : /^$/);
    if (rest === "") continue;
    assert.equal(connection.destroyed, false);
    t.mock.timers.tick(1);
    assert.ok(connection.destroyed);
  }
});

test("whoever does not read its answer in time is cut", async (t) => {
  t.mock.timers.enable({ apis: ["setTimeout"] });
  const { connection, request } = opened();
  connection.push("GET / HTTP/1.1\r\n\r\n");
  request.once("data", () => readBody(request, 0));
  await settled();
  request.end("an answer");
  t.mock.timers.tick(ANSWER_MS - 1);
  await settled();
  assert.equal(connection.destroyed, false);
  t.mock.timers.tick(1);
  assert.ok(connection.destroyed);
});

test("what stands behind the request is neither parsed nor read, and the answer has its time to be read", async (t) => {
  t.mock.timers.enable({ apis: ["setTimeout"] });
  const { connection, request, read } = opened();
  connection.push("GET / HTTP/1.1\r\n\r\nGET /2 HTTP/1.1\r\n\r\n");
  request.once("data", () => readBody(request, 0));
  await settled();
  request.end("an answer");
  await settled();
  connection.drain();
  await settled();
  assert.equal(read(), "GET / HTTP/1.1\r\n\r\n");
  assert.deepEqual([connection.writableFinished, connection.destroyed], [true, false]);
  assert.equal(connection.readableLength, "GET /2 HTTP/1.1\r\n\r\n".length);
  t.mock.timers.tick(1_000);
  assert.ok(connection.destroyed);
});
