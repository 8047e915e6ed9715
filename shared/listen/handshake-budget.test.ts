import assert from "node:assert/strict";
import { test } from "node:test";
import { TokenBuckets } from "../basics/rate-limit.ts";
import { type HandshakeBudget, UNLIMITED, WASTE, WastedBytes } from "./handshake-budget.ts";

const budget = (provenAs?: string): HandshakeBudget => ({
  take: () => true,
  provenAs,
  waste: new TokenBuckets({ ...WASTE, now: () => 0 }),
});

const MORE_THAN_FREE = WASTE.burst + 1;

test("a network that owes bytes at one side of a cluster may still begin handshakes elsewhere", () => {
  const wasted = new WastedBytes();
  const [blue, red] = [budget(), budget()];
  assert.equal(wasted.charge({ network: "a", budget: blue }, WASTE.burst), false);
  assert.equal(wasted.charge({ network: "a", budget: blue }, 1), true);
  assert.equal(wasted.owes({ network: "a", budget: blue }), true);
  assert.equal(wasted.owes({ network: "a", budget: red }), false);
  assert.equal(wasted.owes({ network: "b", budget: blue }), false);
});

test("a network that wastes bytes at many clusters owes them at each", () => {
  const wasted = new WastedBytes();
  for (let cluster = 0; cluster < 5; cluster++) wasted.charge({ network: "a", budget: budget() }, MORE_THAN_FREE);
  assert.equal(wasted.owes({ network: "a", budget: budget() }), true);
  assert.equal(wasted.owes({ network: "a", budget: UNLIMITED }), true);
  assert.equal(wasted.owes({ network: "b", budget: UNLIMITED }), false);
});

test("networks that have proved a credential of a cluster owe together, only there, and not for anybody else", () => {
  const wasted = new WastedBytes();
  const [blue, red] = [budget("proven at blue"), budget("proven at red")];
  for (let count = 0; count < 9; count++) wasted.charge({ network: "a", budget: blue }, MORE_THAN_FREE);
  assert.equal(wasted.owes({ network: "b", budget: blue }), true);
  for (const elsewhere of [red, budget(), UNLIMITED]) {
    assert.equal(wasted.owes({ network: "a", budget: elsewhere }), false);
  }
  for (let cluster = 0; cluster < 5; cluster++) wasted.charge({ network: "c", budget: budget() }, MORE_THAN_FREE);
  assert.equal(wasted.owes({ network: "c", budget: red }), false);
});

test("handshakes that waste nothing have no account, so that no other one is forgotten for them", () => {
  const wasted = new WastedBytes();
  const blue = budget();
  wasted.charge({ network: "a", budget: blue }, MORE_THAN_FREE);
  for (let count = 0; count < 2_000; count++) wasted.charge({ network: `honest ${count}`, budget: blue }, 0);
  assert.equal(wasted.owes({ network: "a", budget: blue }), true);
});
