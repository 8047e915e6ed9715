import assert from "node:assert/strict";
import { once } from "node:events";
import { duplexPair } from "node:stream";
import { test } from "node:test";
import { CulvertError } from "../../shared/outcomes.ts";
import { HelloPlaces, hellosAllowed } from "./hello-places.ts";

function placesOf(maxAgents: number) {
  const counted = { bytes: 0 };
  const memory = {
    onConnection: (bytes: number) => {
      counted.bytes += bytes;
    },
  };
  const rules = { name: "blue", maxAgents, memory };
  return { rules, counted, places: new HelloPlaces(rules) };
}

test("each agent has two places, and a small cluster has some more", () => {
  assert.deepEqual([1, 8, 9, 100].map(hellosAllowed), [16, 16, 18, 200]);
});

test("one too many is told when to come back, and the next gets in where one has left", () => {
  const { places, rules } = placesOf(9);
  const enter = () => {
    const [socket] = duplexPair();
    places.enter(socket);
    return socket;
  };
  const first = enter();
  for (let count = 1; count < 18; count++) enter();
  assert.throws(
    enter,
    (error) =>
      error instanceof CulvertError &&
      error.code === "overloaded" &&
      error.retryAfterMs === 1_000 &&
      /cluster "blue" .*\(--max-agents\)/.test(error.message),
  );
  places.leave(first);
  places.leave(first);
  enter();
  assert.throws(enter);
  rules.maxAgents = 10;
  enter();
  assert.equal(places.size, 19);
});

test("a connection leaves its place when it closes, and what it takes of the process is counted meanwhile", async () => {
  const { places, counted } = placesOf(1);
  const [socket] = duplexPair();
  places.enter(socket);
  assert.equal(counted.bytes, 70 * 1024);
  socket.destroy();
  await once(socket, "close");
  places.leave(socket);
  assert.deepEqual([places.size, counted.bytes], [0, 0]);
  places.enter(socket);
  assert.deepEqual([places.size, counted.bytes], [0, 0], "it has closed before");
});

test("a connection that is closing counts until it has closed, also beyond the places, only once, and whoever leaves it", async () => {
  const { places, counted } = placesOf(1);
  const sockets = Array.from({ length: 17 }, () => duplexPair()[0]);
  for (const socket of sockets) {
    places.closing(socket);
    places.closing(socket);
    places.leave(socket);
  }
  assert.deepEqual([places.size, counted.bytes], [17, 17 * 70 * 1024]);
  assert.throws(() => places.enter(duplexPair()[0]), /or are closing/);
  for (const socket of sockets) socket.destroy();
  await Promise.all(sockets.map((socket) => once(socket, "close")));
  assert.deepEqual([places.size, counted.bytes], [0, 0]);
});
