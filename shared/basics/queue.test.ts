import assert from "node:assert/strict";
import { test } from "node:test";
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import fc from "fast-check";
import { OrderedSet, Queue, QueueNode } from "./queue.ts";

setFlagsFromString("--expose-gc");
const collect: (options?: { type: "minor" }) => void = runInNewContext("gc");

const MEMBERS = Array.from({ length: 6 }, (_, number) => ({ number }));

test("whoever joins and leaves, those who are there are those a Set would have, in its order", () => {
  const step = fc.oneof(
    fc.record({ does: fc.constantFrom("joins" as const, "leaves" as const), who: fc.nat(MEMBERS.length - 1) }),
    { weight: 1, arbitrary: fc.constant({ does: "all leave" as const, who: 0 }) },
  );
  const property = fc.property(fc.array(step, { maxLength: 60 }), (steps) => {
    const [queue, crowd, set] = [new Queue<object>(), new OrderedSet(), new Set<object>()];
    const places = MEMBERS.map((member) => new QueueNode<object>(member));
    for (const { does, who } of steps) {
      const [member, place] = [MEMBERS[who] ?? assert.fail(), places[who] ?? assert.fail()];
      if (does === "joins") {
        queue.join(place);
        crowd.add(member);
        set.add(member);
      } else if (does === "leaves") {
        const left = set.delete(member);
        assert.deepEqual([queue.leave(place), crowd.delete(member)], [left, left]);
      } else {
        for (const all of [queue, crowd, set]) all.clear();
      }
      const there = [...set];
      assert.deepEqual([[...queue], [...crowd]], [there, there]);
      assert.deepEqual([queue.first?.member, crowd.first], [there[0], there[0]]);
      assert.deepEqual([queue.size, crowd.size], [set.size, set.size]);
    }
  });
  fc.assert(property, { numRuns: 300 });
});

test("who leaves before it is his turn is not visited, and who joins meanwhile neither", () => {
  const crowd = new OrderedSet<{ number: number }>();
  const [first, second, third, late] = [0, 1, 2, 3].map((number) => MEMBERS[number] ?? assert.fail());
  assert.ok(first && second && third && late);
  for (const member of [first, second, third]) crowd.add(member);
  const visited: number[] = [];
  for (const { number } of crowd) {
    visited.push(number);
    crowd.delete(first);
    crowd.delete(second);
    crowd.add(late);
  }
  assert.deepEqual(visited, [0, 2]);
});

test("a place stands in one queue: to join another is to leave the first", () => {
  const [one, other, place] = [new Queue<string>(), new Queue<string>(), new QueueNode("it")];
  one.join(place);
  other.join(place);
  assert.deepEqual([[...one], [...other], one.leave(place)], [[], ["it"], false]);
});

test("who has left is free at the next minor collection, also when the place where he was is old", () => {
  const crowd = new OrderedSet();
  const present: object[] = [];
  /** A few at a time, as connections are. */
  const pass = (count: number): void => {
    for (let number = 0; number < count; number++) {
      const member = { holds: new Array(1_000).fill(number) };
      present.push(member);
      crowd.add(member);
      if (present.length > 32) crowd.delete(present.shift() as object);
    }
  };
  pass(1_000);
  collect();
  collect();
  const before = process.memoryUsage().heapUsed;
  pass(4_000); // 32 MB
  collect({ type: "minor" });
  collect({ type: "minor" });
  const grown = process.memoryUsage().heapUsed - before;
  assert.ok(grown < 4e6, `${grown} bytes are held`);
});
