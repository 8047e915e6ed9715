import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { BySource } from "./by-source.ts";

interface Item {
  readonly source: string;
  readonly number: number;
}

const FLOOD: readonly Item[] = Array.from({ length: 100 }, (_, number) => ({ source: "flood", number }));

function filled(items: readonly Item[]): BySource<Item> {
  const all = new BySource<Item>();
  for (const item of items) all.add(item, item.source);
  return all;
}

test("the source that has most loses its oldest, and others lose nothing", () => {
  const honest = { source: "a", number: 0 };
  const all = filled([honest, ...FLOOD]);
  for (const expected of FLOOD.slice(0, 99)) {
    const dropped = all.oldestOfFullest ?? assert.fail();
    assert.equal(dropped, expected);
    all.delete(dropped);
  }
  assert.ok(all.has(honest));
});

test("sources take turns, each in its own order of arrival", () => {
  const all = filled([...FLOOD, { source: "a", number: 0 }, { source: "a", number: 1 }, { source: "b", number: 0 }]);
  const taken: string[] = [];
  while (taken.length < 7) {
    const item = all.next ?? assert.fail();
    all.delete(item);
    taken.push(`${item.source}${item.number}`);
  }
  assert.deepEqual(taken, ["flood0", "a0", "b0", "flood1", "a1", "flood2", "flood3"]);
});

test("a source whose turn is passed keeps its items and waits for its next turn", () => {
  const all = filled([...FLOOD.slice(0, 2), { source: "a", number: 0 }]);
  all.passTurn();
  assert.equal(all.next?.source, "a");
  all.passTurn();
  assert.equal(all.next, FLOOD[0]);
});

test("sources that have gone leave nothing behind but a few places", () => {
  const all = new BySource<Item>();
  for (let number = 0; number < 1_000; number++) {
    const item = { source: `source ${number}`, number };
    all.add(item, item.source);
    all.delete(item);
  }
  assert.deepEqual([all.size, all.sources, all.next, all.oldestOfFullest], [0, 0, undefined, undefined]);
  assert.deepEqual([...all], []);
});

test("it agrees with a list that is searched, whatever comes and goes", () => {
  const step = fc.record({ add: fc.boolean(), source: fc.integer({ min: 0, max: 4 }), index: fc.nat(30) });
  fc.assert(
    fc.property(fc.array(step, { maxLength: 200 }), (steps) => {
      const all = new BySource<Item>();
      let model: Item[] = [];
      for (const [number, { add, source, index }] of steps.entries()) {
        const item = add ? { source: `${source}`, number } : model[index % Math.max(1, model.length)];
        if (item === undefined) continue;
        if (add) all.add(item, item.source);
        else assert.equal(all.delete(item), true);
        model = add ? [...model, item] : model.filter((each) => each !== item);
        const sizes = new Map<string, number>();
        for (const each of model) sizes.set(each.source, (sizes.get(each.source) ?? 0) + 1);
        const most = Math.max(0, ...sizes.values());
        const fullest = all.oldestOfFullest;
        assert.deepEqual([...all], model);
        assert.equal(all.sources, sizes.size);
        for (const [each, size] of sizes) assert.equal(all.sizeOf(each), size);
        if (fullest === undefined) assert.equal(most, 0);
        else {
          assert.equal(sizes.get(fullest.source), most);
          assert.equal(
            fullest,
            model.find((each) => each.source === fullest.source),
          );
        }
        const { next } = all;
        assert.equal(next, next && model.find((each) => each.source === next.source));
      }
    }),
  );
});
