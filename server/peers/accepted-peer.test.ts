import assert from "node:assert/strict";
import { duplexPair } from "node:stream";
import { test } from "node:test";
import { MemoryPool } from "../../shared/limits/memory-pool.ts";
import type { ControlMessage } from "../../shared/link/control.ts";
import type { PeerIdentity } from "../../shared/tls/identity.ts";
import { DuplexTransport } from "../../shared/yamux/testing/duplex-transport.ts";
import { AcceptedPeer } from "./accepted-peer.ts";
import { PeerLog } from "./peer-log.ts";

const IDENTITY: PeerIdentity = { o: [], dns: [], uri: [], fingerprint256: "x", notAfter: new Date(), chain: [] };

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
  const peer = new AcceptedPeer(
    { serverId: "srv-2", software: "test", link, identity: IDENTITY },
    {
      options: { initialWindow: 65_536, maxWindow: 65_536, sessionBudget: 1_048_576, maxStreams: 10 },
      ...{ trust: { objection, isRevoked: () => false }, peerMemory: new MemoryPool(1_048_576).share("(peers)") },
      peerLog: new PeerLog({ write: () => {} }),
      onStream: () => {},
    },
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
