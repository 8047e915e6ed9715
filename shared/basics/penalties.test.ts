import assert from "node:assert/strict";
import { test } from "node:test";
import { Penalties } from "./penalties.ts";

function penalties() {
  let nowMs = 0;
  return { all: new Penalties(() => nowMs), advance: (ms: number) => (nowMs += ms) };
}

test("each offence doubles the wait up to a minute, and ten quiet minutes begin anew", () => {
  const { all, advance } = penalties();
  const waits: number[] = [];
  for (let offence = 0; offence < 8; offence++) {
    all.add("192.0.2.1");
    waits.push(all.leftMs("192.0.2.1"));
    advance(waits.at(-1) ?? 0);
    assert.equal(all.leftMs("192.0.2.1"), 0);
  }
  assert.deepEqual(waits, [1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 60_000, 60_000]);
  advance(600_000);
  all.add("192.0.2.1");
  assert.equal(all.leftMs("192.0.2.1"), 1_000);
});

test("other networks do not wait, and only so many are remembered", () => {
  const { all } = penalties();
  for (let index = 0; index <= 1_024; index++) all.add(`network ${index}`);
  assert.equal(all.leftMs("another"), 0);
  assert.equal(all.leftMs("network 0"), 0);
  assert.equal(all.leftMs("network 1"), 1_000);
});
