import assert from "node:assert/strict";
import { type TestContext, test } from "node:test";
import { type HandshakeBudget, UNLIMITED, WASTE, WastedBytes } from "./handshake-budget.ts";

const budget = (provenAs?: string): HandshakeBudget => ({ take: () => true, provenAs });

const MORE_THAN_FREE = WASTE.burst + 1;

/** Nothing is forgiven while the clock stands still. */
function wastedBytes(t: TestContext): WastedBytes {
  t.mock.method(performance, "now", () => 0);
  return new WastedBytes();
}

test("a network that wastes bytes owes them, whatever the cluster, and no other network does", (t) => {
  const wasted = wastedBytes(t);
  assert.equal(wasted.charge({ network: "a", budget: budget() }, WASTE.burst), false);
  assert.equal(wasted.charge({ network: "a", budget: budget() }, 1), true);
  assert.equal(wasted.owes({ network: "a", budget: budget() }), true);
  assert.equal(wasted.owes({ network: "a", budget: UNLIMITED }), true);
  assert.equal(wasted.owes({ network: "b", budget: UNLIMITED }), false);
});

test("networks that have proved a credential of a cluster owe together, only there, and not for anybody else", (t) => {
  const wasted = wastedBytes(t);
  const [blue, red] = [budget("proven at blue"), budget("proven at red")];
  wasted.charge({ network: "a", budget: blue }, MORE_THAN_FREE);
  assert.equal(wasted.owes({ network: "b", budget: blue }), true);
  for (const elsewhere of [red, budget(), UNLIMITED]) {
    assert.equal(wasted.owes({ network: "a", budget: elsewhere }), false);
  }
  wasted.charge({ network: "c", budget: budget() }, MORE_THAN_FREE);
  assert.equal(wasted.owes({ network: "c", budget: red }), false);
});

test("handshakes that waste nothing have no account, so that no other one is forgotten for them", (t) => {
  const wasted = wastedBytes(t);
  const blue = budget();
  wasted.charge({ network: "a", budget: blue }, MORE_THAN_FREE);
  for (let count = 0; count < 2_000; count++) wasted.charge({ network: `honest ${count}`, budget: blue }, 0);
  assert.equal(wasted.owes({ network: "a", budget: blue }), true);
});
