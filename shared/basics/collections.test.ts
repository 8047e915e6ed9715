import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { ById, getOrMake, OrderedSet, Queue, QueueNode, RecentMap } from "./collections.ts";

const MEMBERS = Array.from({ length: 6 }, (_, number) => ({ number }));

test("it has the members that a Set would have, in the same order", () => {
  const step = fc.oneof(
    fc.record({ does: fc.constantFrom("joins" as const, "leaves" as const), who: fc.nat(MEMBERS.length - 1) }),
    { weight: 1, arbitrary: fc.constant({ does: "all leave" as const, who: 0 }) },
  );
  const property = fc.property(fc.array(step, { maxLength: 60 }), (steps) => {
    const [queue, ordered, set] = [new Queue<object>(), new OrderedSet(), new Set<object>()];
    const nodes = MEMBERS.map((member) => new QueueNode<object>(member));
    for (const { does, who } of steps) {
      const [member, node] = [MEMBERS[who] ?? assert.fail(), nodes[who] ?? assert.fail()];
      if (does === "joins") {
        queue.join(node);
        ordered.add(member);
        set.add(member);
      } else if (does === "leaves") {
        const left = set.delete(member);
        assert.deepEqual([queue.leave(node), ordered.delete(member)], [left, left]);
      } else {
        for (const all of [queue, set]) all.clear();
        for (const each of MEMBERS) ordered.delete(each);
      }
      const there = [...set];
      assert.deepEqual([[...queue], [...ordered]], [there, there]);
      assert.deepEqual([queue.first?.member, ordered.first], [there[0], there[0]]);
      assert.deepEqual([queue.size, ordered.size], [set.size, set.size]);
    }
  });
  fc.assert(property, { numRuns: 300 });
});

test("a member that leaves before its turn is not visited, nor one that joins meanwhile", () => {
  const ordered = new OrderedSet<{ number: number }>();
  const [first, second, third, late] = [0, 1, 2, 3].map((number) => MEMBERS[number] ?? assert.fail());
  assert.ok(first && second && third && late);
  for (const member of [first, second, third]) ordered.add(member);
  const visited: number[] = [];
  for (const { number } of ordered) {
    visited.push(number);
    ordered.delete(first);
    ordered.delete(second);
    ordered.add(late);
  }
  assert.deepEqual(visited, [0, 2]);
});

test("a node stands in one queue: joining another one leaves the first", () => {
  const [one, other, node] = [new Queue<string>(), new Queue<string>(), new QueueNode("it")];
  one.join(node);
  other.join(node);
  assert.deepEqual([[...one], [...other], one.leave(node)], [[], ["it"], false]);
});

test("the entry that was set longest ago makes room for a new one", () => {
  const map = new RecentMap<string, number>(2);
  map.set("a", 1);
  map.set("b", 2);
  map.set("a", 3);
  map.set("c", 4);
  assert.deepEqual([map.get("a"), map.get("b"), map.get("c")], [3, undefined, 4]);
  map.set("d", 6);
  assert.deepEqual([map.get("a"), map.get("c"), map.get("d")], [undefined, 4, 6]);
});

test("a value is made once for its key, in a map of any kind", () => {
  for (const map of [new Map<string, number>(), new RecentMap<string, number>(2)]) {
    let made = 0;
    const values = ["a", "b", "a"].map((key) => getOrMake(map, key, () => ++made));
    assert.deepEqual([values, map.get("a"), map.get("b")], [[1, 2, 1], 1, 2]);
  }
});

interface Member {
  readonly id: number;
}

test("whichever members come and go, each id finds its own, and only those that are here are listed", () => {
  const step = fc.record({ does: fc.constantFrom("comes", "goes", "all go"), id: fc.nat(7) });
  const property = fc.property(fc.array(step, { maxLength: 60 }), (steps) => {
    const [table, map] = [new ById<Member>(), new Map<number, Member>()];
    for (const { does, id } of steps) {
      const member = map.get(id) ?? { id };
      if (does === "all go") {
        table.clear();
        map.clear();
      } else if (does === "goes") {
        assert.equal(table.delete(member), map.delete(id));
      } else if (!map.has(id)) {
        table.add(member);
        map.set(id, member);
      }
      assert.equal(table.size, map.size);
      assert.deepEqual(new Set(table), new Set(map.values()));
      for (let each = 0; each < 8; each++) assert.equal(table.get(each), map.get(each));
    }
  });
  fc.assert(property, { numRuns: 300 });
});

test("a member of the same id that is not the one here removes nothing", () => {
  const table = new ById<Member>();
  const member = { id: 1 };
  table.add(member);
  assert.equal(table.delete({ id: 1 }), false);
  assert.equal(table.get(1), member);
});
