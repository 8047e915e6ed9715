import assert from "node:assert/strict";
import { type TestContext, test } from "node:test";
import type { PeerIdentity } from "../../shared/tls/identity.ts";
import { PeerWatch } from "./peer-watch.ts";

const IDENTITY: PeerIdentity = { o: [], dns: [], uri: [], fingerprint256: "x", notAfter: new Date(), chain: [] };
const RENEWED: PeerIdentity = { ...IDENTITY, fingerprint256: "y" };

/** A peer whose first certificate is not accepted any more as soon as the test says so. */
function watched(t: TestContext) {
  t.mock.timers.enable({ apis: ["setTimeout", "setInterval"] });
  const state = { isAccepted: true, isRevoked: false };
  const events: string[] = [];
  const trust = {
    objection: (identity: PeerIdentity) => (state.isAccepted || identity === RENEWED ? undefined : "it has expired"),
    isRevoked: () => state.isRevoked,
  };
  const watch = new PeerWatch(IDENTITY, trust, {
    onAsk: () => void events.push("asked"),
    onUntrusted: ({ message }) => void events.push(`ended: ${message}`),
  });
  t.after(() => watch.close());
  return { state, events, watch, tick: (ms: number) => t.mock.timers.tick(ms) };
}

test("a peer whose certificate is not accepted any more is asked for another one, and its link ends without", (t) => {
  const { state, events, tick } = watched(t);
  tick(60_000);
  assert.deepEqual(events, []);
  state.isAccepted = false;
  tick(30_000);
  assert.deepEqual(events, ["asked"]);
  tick(10_000);
  assert.deepEqual(events, ["asked", "ended: it has expired"]);
});

test("a peer that shows another certificate in time keeps its link", (t) => {
  const { state, events, watch, tick } = watched(t);
  state.isAccepted = false;
  watch.verifyAgain();
  watch.verifyAgain();
  watch.renewed(RENEWED);
  tick(60_000);
  assert.deepEqual(events, ["asked"]);
});

test("the link of a peer whose certificate is revoked ends at once", (t) => {
  const { state, events, watch } = watched(t);
  watch.endIfRevoked();
  state.isRevoked = true;
  watch.endIfRevoked();
  assert.deepEqual(events, ["ended: its certificate is revoked"]);
});

test("a link that has ended is watched no longer", (t) => {
  const { state, events, watch, tick } = watched(t);
  state.isAccepted = false;
  watch.verifyAgain();
  watch.close();
  tick(120_000);
  assert.deepEqual(events, ["asked"]);
});
