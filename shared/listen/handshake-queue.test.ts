import assert from "node:assert/strict";
import { test } from "node:test";
import { setImmediate as turn } from "node:timers/promises";
import { UNLIMITED } from "./handshake-budget.ts";
import {
  type HandshakeBounds,
  HandshakeQueue,
  type HandshakeQueueHandler,
  MAX_QUICK,
  type QueuedHandshake,
} from "./handshake-queue.ts";

type Named = QueuedHandshake & { readonly name: string };

const from = (network: string, budget = UNLIMITED, name = network): Named => {
  return { name, network, budget, begunAt: 0 };
};

/** A queue of handshakes whose names are listed when they begin or are dropped. */
class Fixture implements Disposable {
  readonly begun: string[] = [];
  readonly dropped: string[] = [];
  /** Networks that may begin no handshake. */
  readonly waiting = new Set<string>();
  readonly queue: HandshakeQueue<Named>;
  readonly #numbered = Array.from({ length: 2 * MAX_QUICK }, (_, number) => from("one", UNLIMITED, String(number)));

  constructor(bounds: Partial<HandshakeBounds> = {}, begin?: HandshakeQueueHandler<Named>["begin"]) {
    this.queue = new HandshakeQueue(
      { maxHandshakes: 1_000, maxWaitingHandshakes: 1_000, ...bounds },
      {
        mayBegin: ({ network }) => !this.waiting.has(network),
        begin: (item) => {
          this.begun.push(item.name);
          begin?.(item);
        },
        drop: (item, how) => {
          this.dropped.push(`${how} ${item.name}`);
          this.queue.leave(item);
        },
      },
    );
  }

  enter(number: number): void {
    this.queue.enter(this.#numbered[number] ?? assert.fail());
  }

  leave(number: number): void {
    this.queue.leave(this.#numbered[number] ?? assert.fail());
  }

  /** The names of the first `count` that begin. */
  async begins(count: number): Promise<string[]> {
    const deadline = Date.now() + 20_000;
    while (this.begun.length < count && Date.now() < deadline) await turn();
    return this.begun.slice(0, count);
  }

  [Symbol.dispose](): void {
    for (const item of [...this.queue]) this.queue.leave(item);
  }
}

test("handshakes begin in the order of arrival, one in a turn", async () => {
  using it = new Fixture();
  for (const item of [1, 2, 3]) it.enter(item);
  assert.deepEqual(it.begun, []);
  for (const expected of [["1"], ["1", "2"], ["1", "2", "3"]]) {
    await turn();
    assert.deepEqual(it.begun, expected);
  }
});

test("only a few are in progress at once; one that is over lets the next begin, one that has gone is passed over", async () => {
  using it = new Fixture();
  const few = Array.from({ length: MAX_QUICK }, (_, number) => number);
  for (const number of [...few, MAX_QUICK, MAX_QUICK + 1]) it.enter(number);
  await it.begins(MAX_QUICK);
  for (let turns = 0; turns < 10; turns++) await turn();
  assert.deepEqual(it.begun, few.map(String));
  it.leave(MAX_QUICK);
  it.leave(0);
  assert.equal((await it.begins(MAX_QUICK + 1)).at(-1), String(MAX_QUICK + 1));
  assert.equal(it.queue.waiting, 0);
});

test("handshakes whose peers do not go on keep nobody out for long, and the oldest are dropped", async () => {
  using it = new Fixture({ maxHandshakes: 4 });
  const items = Array.from({ length: 20 }, (_, i) => i);
  for (const item of items) it.enter(item);
  assert.deepEqual(await it.begins(items.length), items.map(String));
  assert.deepEqual(it.dropped.length, items.length - 4);
  assert.equal(it.dropped[0], "dropped 0");
});

test("one that has gone when its turn comes displaces none in progress", async () => {
  using it: Fixture = new Fixture({ maxHandshakes: 1 }, (item) => {
    if (item.name === "1") it.queue.leave(item);
  });
  for (const item of [0, 1]) it.enter(item);
  assert.deepEqual(await it.begins(2), ["0", "1"]);
  assert.deepEqual(it.dropped, []);
});

/** Lets handshakes begin and end until `count` have begun; the names of those that did, in order. */
async function namesBegun(waiting: readonly Named[], count: number): Promise<string[]> {
  using it: Fixture = new Fixture({}, (item) => setImmediate(() => it.queue.leave(item)));
  for (const item of waiting) it.queue.enter(item);
  return await it.begins(count);
}

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
  using it = new Fixture({ maxWaitingHandshakes: 3 });
  for (const [index, network] of ["a", "flood", "flood", "b"].entries())
    it.queue.enter(from(network, UNLIMITED, `${network} ${index}`));
  assert.deepEqual(it.dropped, ["crowded flood 1"]);
  assert.equal(it.queue.waiting, 3);
});

test("a network that may begin no handshake keeps its clients waiting, and nobody else's", async () => {
  using it = new Fixture();
  it.waiting.add("indebted");
  for (const network of ["indebted", "indebted", "other", "third"]) it.queue.enter(from(network));
  assert.deepEqual((await it.begins(2)).toSorted(), ["other", "third"]);
  assert.equal(it.queue.waiting, 2);
  it.waiting.clear();
  assert.deepEqual((await it.begins(4)).slice(2), ["indebted", "indebted"]);
});
