import assert from "node:assert/strict";
import { test } from "node:test";
import { DialRecord, type Pickable, pick } from "./pick.ts";

interface Row extends Pickable {
  readonly name: string;
}

function tunnel(name: string, streamCount: number, more: Partial<Pickable> = {}): Row {
  return { name, streamCount, draining: false, suspended: false, closed: false, rests: false, lastUsed: 0, ...more };
}

const TABLE: ReadonlyArray<readonly [sentence: string, tunnels: readonly Row[], picked: string | undefined]> = [
  ["no tunnel, no pick", [], undefined],
  ["the only tunnel is picked", [tunnel("a", 7)], "a"],
  ["the fewest streams win", [tunnel("a", 3), tunnel("b", 1), tunnel("c", 2)], "b"],
  ["a draining tunnel is never picked", [tunnel("a", 0, { draining: true }), tunnel("b", 9)], "b"],
  ["a closed tunnel is never picked", [tunnel("a", 0, { closed: true }), tunnel("b", 9)], "b"],
  ["a suspended tunnel is never picked", [tunnel("a", 0, { suspended: true }), tunnel("b", 9)], "b"],
  ["nothing is picked when all drain", [tunnel("a", 0, { draining: true })], undefined],
  ["among equals the longest unused wins", [tunnel("a", 1, { lastUsed: 5 }), tunnel("b", 1, { lastUsed: 2 })], "b"],
  ["one that rests comes after all others", [tunnel("a", 0, { rests: true }), tunnel("b", 9)], "b"],
  ["one that rests is better than none", [tunnel("a", 0, { rests: true }), tunnel("b", 0, { closed: true })], "a"],
  [
    "of those that rest the fewest streams win",
    [tunnel("a", 2, { rests: true }), tunnel("b", 1, { rests: true })],
    "b",
  ],
  ["use counts less than streams", [tunnel("a", 1, { lastUsed: 5 }), tunnel("b", 2, { lastUsed: 2 })], "a"],
];

test("the best tunnel is picked", () => {
  for (const [sentence, tunnels, picked] of TABLE) assert.equal(pick(tunnels)?.name, picked, sentence);
});

test("a second try does not take the same tunnel", () => {
  const [a, b] = [tunnel("a", 0), tunnel("b", 5)];
  assert.equal(pick([a, b], a), b);
  assert.equal(pick([a], a), undefined);
});

test("an agent rests after three dials in a row have failed, longer after each further one, and for 30 s at most", () => {
  let now = 1_000_000;
  const record = new DialRecord(() => now);
  const restMs = (): number => {
    const before = now;
    while (record.rests) now += 250;
    return now - before;
  };
  record.failed();
  record.failed();
  assert.equal(record.rests, false);
  const rests: number[] = [];
  for (let failure = 0; failure < 8; failure++) {
    record.failed();
    rests.push(restMs());
  }
  assert.deepEqual(rests, [1_000, 2_000, 4_000, 8_000, 16_000, 30_000, 30_000, 30_000]);
});

test("a dial that succeeds ends the rest, and begins the count anew", () => {
  const record = new DialRecord(() => 0);
  for (let failure = 0; failure < 5; failure++) record.failed();
  assert.equal(record.rests, true);
  record.succeeded();
  assert.equal(record.rests, false);
  record.failed();
  record.failed();
  assert.equal(record.rests, false);
});
