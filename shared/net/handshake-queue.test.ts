import assert from "node:assert/strict";
import { test } from "node:test";
import { setImmediate as turn } from "node:timers/promises";
import { HandshakeQueue, nextLimit } from "./handshake-queue.ts";

const AT_FIRST = 4;

/** A queue of handshakes that are told by their numbers. */
function queueOf(most = 1_000) {
  const begun: number[] = [];
  const handshakes = Array.from({ length: 100 }, (_, number) => ({ number }));
  const at = (number: number) => handshakes[number] ?? assert.fail();
  const queue = new HandshakeQueue<{ number: number }>({ most, begin: ({ number }) => begun.push(number) });
  return {
    begun,
    enter: (number: number) => queue.enter(at(number)),
    enterFirst: (number: number) => queue.enterFirst(at(number)),
    leave: (number: number) => queue.leave(at(number)),
    clear: () => queue.clear().map(({ number }) => number),
    waiting: () => queue.waiting,
    [Symbol.dispose]: () => void queue.clear(),
  };
}

for (const [what, limit, lateMs, next] of [
  ["a quarter more while the loop is in time", 20, 0, 25],
  ["half when the loop is late", 20, 50, 10],
  ["never fewer than a few, however late the loop is", 9, 500, AT_FIRST],
  ["never more than may be in progress at all", 1_000, 0, 1_000],
] as const) {
  test(`in progress may be ${what}`, () => assert.equal(nextLimit(limit, lateMs, 1_000), next));
}

test("handshakes begin in the order of arrival, one in a turn", async () => {
  using it = queueOf();
  for (const item of [1, 2, 3]) it.enter(item);
  assert.deepEqual(it.begun, []);
  for (const expected of [[1], [1, 2], [1, 2, 3]]) {
    await turn();
    assert.deepEqual(it.begun, expected);
  }
});

test("only a few are in progress at once; one that is over lets the next begin, one that has gone is passed over", async () => {
  using it = queueOf();
  const items = Array.from({ length: AT_FIRST + 3 }, (_, i) => i);
  for (const item of items) it.enter(item);
  for (const _ of items) await turn();
  const few = it.begun.length;
  assert.ok(few >= AT_FIRST && few <= items.length);
  it.leave(AT_FIRST + 1);
  for (let item = 0; item < few; item++) it.leave(item);
  for (const _ of items) await turn();
  assert.equal(it.waiting(), 0);
  if (few <= AT_FIRST + 1) assert.ok(!it.begun.includes(AT_FIRST + 1));
});

test("handshakes whose peers do not go on keep nobody out for long", async () => {
  using it = queueOf(AT_FIRST);
  const items = Array.from({ length: 5 * AT_FIRST }, (_, i) => i);
  for (const item of items) it.enter(item);
  const deadline = Date.now() + 20_000;
  while (it.begun.length < items.length && Date.now() < deadline) await turn();
  assert.deepEqual(it.begun, items);
});

test("who enters first goes before all that wait, and never are there more than may be", async () => {
  using it = queueOf(2);
  for (const item of [1, 2, 3, 4]) it.enter(item);
  await turn();
  await turn();
  it.enterFirst(9);
  await turn();
  assert.deepEqual(it.begun, [1, 2]);
  it.leave(1);
  await turn();
  assert.deepEqual(it.begun, [1, 2, 9]);
  assert.deepEqual(it.clear(), [3, 4]);
  assert.equal(it.waiting(), 0);
});
