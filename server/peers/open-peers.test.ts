import assert from "node:assert/strict";
import { test } from "node:test";
import { LinkRefused } from "../../shared/wire/handshake.ts";
import { OpenPeers } from "./open-peers.ts";

function world(most: number) {
  const peers = new OpenPeers<{ destroy(reason: Error): void }>(most);
  const ended: string[] = [];
  const dial = (name: string, network: string): void => {
    peers.makeRoom(network);
    peers.add({ destroy: ({ message }) => void ended.push(`${name}: ${message}`) }, network);
  };
  return { peers, ended, dial };
}

test("a network that takes all places loses its oldest links to the servers of others", () => {
  const { peers, ended, dial } = world(4);
  for (const name of ["a1", "a2", "a3", "a4"]) dial(name, "a");
  dial("b1", "b");
  assert.deepEqual(ended, ["a1: its network has 4 links here, and its place was needed"]);
  dial("c1", "c");
  assert.deepEqual(ended.slice(1), ["a2: its network has 3 links here, and its place was needed"]);
  assert.equal(peers.size, 4);
});

test("where each server has one link, and the network that floods, one more is refused", () => {
  const { peers, ended, dial } = world(3);
  for (const network of ["a", "b", "c"]) dial(network, network);
  for (const network of ["d", "a"]) assert.throws(() => dial("late", network), LinkRefused);
  assert.deepEqual([ended, peers.size], [[], 3]);
});

test("a link that has ended frees its place", () => {
  const { peers, dial } = world(2);
  dial("a", "a");
  dial("b", "b");
  const [first] = peers;
  assert.ok(first);
  peers.delete(first);
  dial("c", "c");
  assert.equal(peers.size, 2);
});
