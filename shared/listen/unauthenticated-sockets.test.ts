import assert from "node:assert/strict";
import { test } from "node:test";
import { type Unauthenticated, UnauthenticatedSockets } from "./unauthenticated-sockets.ts";

function fixture(limit: number | undefined) {
  const sockets = new UnauthenticatedSockets(limit);
  const dropped: string[] = [];
  const add = (name: string): Unauthenticated => {
    const connection = { network: name.slice(0, 1), onCrowdedOut: () => dropped.push(name) };
    sockets.add(connection);
    return connection;
  };
  return { sockets, dropped, add };
}

test("half of the open files is theirs, and one too many drops the oldest of the network that has most", () => {
  const { sockets, dropped, add } = fixture(9);
  for (const name of ["b1", "a1", "a2", "b2", "a3"]) add(name);
  assert.deepEqual([dropped, sockets.size], [["a1"], 4]);
  add("c1");
  assert.deepEqual(dropped, ["a1", "b1"]);
});

test("who has made its request takes no place any more", () => {
  const { sockets, dropped, add } = fixture(4);
  const first = add("a1");
  add("a2");
  sockets.delete(first);
  sockets.delete(first);
  add("b1");
  assert.deepEqual([dropped, sockets.size], [[], 2]);
});

test("without a limit of files there is none here", () => {
  const { dropped, add } = fixture(undefined);
  for (let count = 0; count < 30_000; count++) add("a");
  assert.deepEqual(dropped, []);
});
