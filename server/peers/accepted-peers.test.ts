import assert from "node:assert/strict";
import { duplexPair } from "node:stream";
import { test } from "node:test";
import { BySource } from "../../shared/basics/by-source.ts";
import { MemoryPool } from "../../shared/limits/memory-pool.ts";
import type { ControlMessage } from "../../shared/link/control.ts";
import type { PeerIdentity } from "../../shared/tls/identity.ts";
import { LinkRefused } from "../../shared/wire/handshake.ts";
import { DuplexTransport } from "../../shared/yamux/testing/duplex-transport.ts";
import { contextOf } from "../tunnels/testing/context.ts";
import { AcceptedPeer, makeRoom } from "./accepted-peers.ts";
import type { PeerTrust } from "./peer-trust.ts";

const IDENTITY: PeerIdentity = {
  o: [],
  dns: [],
  uri: [],
  serial: "01",
  fingerprint256: "x",
  notAfter: new Date(),
  chain: [],
};

class LinkOverPair extends DuplexTransport {
  readonly remote = "127.0.0.1:1";
  readonly control: ControlMessage[] = [];

  sendControl(message: ControlMessage): void {
    this.control.push(message);
  }
}

/** A peer whose certificate `IDENTITY` is not accepted any more as soon as the test says so. */
function peerOf() {
  const state = { isAccepted: true, isClosed: false };
  const link = new LinkOverPair(duplexPair()[0]);
  const objection = () => (state.isAccepted ? undefined : "its certificate has expired");
  const judge = { objection, isRevoked: () => false } satisfies Pick<PeerTrust, "objection" | "isRevoked">;
  const trust = judge as unknown as PeerTrust;
  const memory = new MemoryPool(1_048_576).share("(peers)");
  const peer = new AcceptedPeer(
    { type: "hello", version: 1, agentId: "srv-2", instance: "2", software: "test" },
    link,
    IDENTITY,
    { trust, memory, instance: "1", onStream: () => {} },
    contextOf({ initialWindow: 65_536, maxWindow: 65_536, sessionBudget: 1_048_576, maxStreams: 10 }),
  );
  void peer.closed.then(() => {
    state.isClosed = true;
  });
  return { state, link, peer };
}

test("a peer whose certificate is not accepted any more is asked for a new one, and loses its link without", async (t) => {
  t.mock.timers.enable({ apis: ["setTimeout", "setInterval"] });
  const { state, link, peer } = peerOf();
  t.mock.timers.tick(60_000);
  assert.deepEqual(link.control, []);
  state.isAccepted = false;
  t.mock.timers.tick(30_000);
  assert.deepEqual(
    link.control.map(({ type }) => type),
    ["rotate"],
  );
  assert.equal(state.isClosed, false);
  t.mock.timers.tick(10_000);
  await peer.closed;
});

function world(most: number) {
  const peers = new BySource<{ destroy(reason: Error): void }>();
  const ended: string[] = [];
  const dial = (name: string, network: string): void => {
    makeRoom(peers, network, most);
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
