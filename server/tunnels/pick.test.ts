import assert from "node:assert/strict";
import { test } from "node:test";
import { type Pickable, pick } from "./pick.ts";

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
