import assert from "node:assert/strict";
import { test } from "node:test";
import { setImmediate as turn } from "node:timers/promises";
import { HandshakeQueue, nextLimit, type QueuedHandshake, UNLIMITED } from "./handshake-queue.ts";

const AT_FIRST = 4;

interface Numbered extends QueuedHandshake {
  readonly number: number;
}

/** A queue of handshakes that are told apart by their numbers. */
function queueOf(most = 1_000) {
  const begun: number[] = [];
  const handshakes = Array.from({ length: 100 }, (_, number) => ({
    number,
    budget: UNLIMITED,
    network: "one",
    begunAt: 0,
  }));
  const at = (number: number) => handshakes[number] ?? assert.fail();
  const queue = new HandshakeQueue<Numbered>({ most, mayBegin: () => true, begin: ({ number }) => begun.push(number) });
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

test("a client that waits alone begins in the next turn, however many others have begun and do not go on", async () => {
  using it = queueOf();
  for (let item = 0; item < 50; item++) {
    it.enter(item);
    await turn();
    assert.equal(it.begun.length, item + 1);
  }
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

/** Lets handshakes begin and end until `count` have begun; the names of those that did, in order. */
async function namesBegun(waiting: readonly (QueuedHandshake & { readonly name: string })[], count: number) {
  const begun: string[] = [];
  const queue: HandshakeQueue<(typeof waiting)[number]> = new HandshakeQueue({
    most: 1_000,
    mayBegin: () => true,
    begin: (item) => {
      begun.push(item.name);
      setImmediate(() => queue.leave(item));
    },
  });
  for (const item of waiting) queue.enter(item);
  const deadline = Date.now() + 20_000;
  while (begun.length < count && Date.now() < deadline) await turn();
  queue.clear();
  return begun.slice(0, count);
}

const from = (network: string, budget = UNLIMITED) => ({ name: network, network, budget, begunAt: 0 });

test("networks take turns, however many clients of one of them wait in front", async () => {
  const many = Array.from({ length: 500 }, () => from("flood"));
  const begun = await namesBegun([...many, from("a"), from("b")], 4);
  assert.deepEqual(begun.toSorted(), ["a", "b", "flood", "flood"]);
});

test("budgets take turns, however many networks wait for one of them", async () => {
  const red = { take: () => true };
  const many = Array.from({ length: 500 }, (_, index) => from(`red ${index}`, red));
  const begun = await namesBegun([...many, from("blue", { take: () => true })], 2);
  assert.ok(begun.includes("blue"), begun.join());
});

test("a budget that has nothing left holds up its own clients only, and they begin when it has", async () => {
  let left = 0;
  const red = { take: () => left-- > 0 };
  const waiting = [
    from("red", red),
    from("red", red),
    ...Array.from({ length: 20 }, () => from("blue", { take: () => true })),
  ];
  const begun = namesBegun(waiting, 22);
  setTimeout(() => (left = 2), 50);
  assert.deepEqual((await begun).slice(-2), ["red", "red"]);
});

test("too many are dropped where they come from: the oldest of the network with most", () => {
  const queue = new HandshakeQueue<Numbered>({ most: 1, mayBegin: () => true, begin: () => {} });
  const items = ["a", "flood", "flood", "b"].map((network, number) => ({
    number,
    network,
    budget: UNLIMITED,
    begunAt: 0,
  }));
  for (const item of items) queue.enter(item);
  assert.equal(queue.oldestOfFullest?.number, 1);
  queue.clear();
  assert.equal(queue.waiting, 0);
});

test("a network that may not begin now is passed over for the others of its budget", async () => {
  const begun: string[] = [];
  const queue = new HandshakeQueue<ReturnType<typeof from>>({
    most: 1_000,
    mayBegin: ({ network }) => network !== "flood",
    begin: ({ name }) => begun.push(name),
  });
  for (const name of ["flood", "flood", "a", "b"]) queue.enter(from(name));
  const deadline = Date.now() + 20_000;
  while (begun.length < 2 && Date.now() < deadline) await turn();
  assert.deepEqual(begun, ["a", "b"]);
  assert.equal(queue.clear().length, 2);
});

test("while connections keep coming, sixteen turns pass between two handshakes, and one at least begins then", async () => {
  let begun = 0;
  const queue = new HandshakeQueue<ReturnType<typeof from>>({
    most: 1_000,
    mayBegin: () => true,
    begin: () => begun++,
  });
  for (let index = 0; index < 10; index++) queue.enter(from("a"));
  for (let turns = 0; turns < 40; turns++) {
    queue.onArrival();
    await turn();
  }
  queue.clear();
  assert.ok(begun >= 2 && begun <= 3, `${begun} began in 40 turns`);
});
