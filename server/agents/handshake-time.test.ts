import assert from "node:assert/strict";
import { once } from "node:events";
import { duplexPair } from "node:stream";
import { test } from "node:test";
import { until } from "../../shared/link/testing/ends.ts";
import { HandshakeTime } from "./handshake-time.ts";

test("who is not known in time is cut, and is over when it is really gone", async () => {
  const [socket] = duplexPair();
  const told: string[] = [];
  socket.once("close", () => told.push("closed"));
  new HandshakeTime(socket, 10).occupy(() => told.push("over"));
  await until(() => told.includes("over"));
  assert.deepEqual(told, ["closed", "over"]);
});

test("who is known is not cut, and is over once", async () => {
  const [socket] = duplexPair();
  let count = 0;
  const time = new HandshakeTime(socket, 1);
  time.occupy(() => count++);
  time.over();
  const [other] = duplexPair();
  new HandshakeTime(other, 1);
  await until(() => other.destroyed); // which had as much time
  assert.equal(socket.destroyed, false);
  socket.destroy();
  await once(socket, "close");
  assert.equal(count, 1);
});

test("time stands still while others judge, and goes on behind it", async () => {
  const [socket] = duplexPair();
  const time = new HandshakeTime(socket, 10);
  const [other] = duplexPair();
  await time.apart(async () => {
    new HandshakeTime(other, 10);
    await until(() => other.destroyed);
  });
  assert.equal(socket.destroyed, false);
  await until(() => socket.destroyed);
});

test("who was cut, and closes later only, is over in time all the same", async () => {
  const [socket] = duplexPair();
  socket._destroy = () => {}; // it keeps its place (shared/listen/paced-close.ts)
  let isOver = false;
  new HandshakeTime(socket, 10).occupy(() => {
    isOver = true;
  });
  socket.destroy();
  await until(() => isOver);
  assert.equal(socket.closed, false);
});

test("who has gone before takes no place", async () => {
  const [socket] = duplexPair();
  socket.destroy();
  await once(socket, "close");
  let count = 0;
  new HandshakeTime(socket, 60_000).occupy(() => count++);
  assert.equal(count, 1);
});
