import assert from "node:assert/strict";
import { test } from "node:test";
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import fc from "fast-check";
import type { Stream } from "./stream.ts";
import { StreamsById } from "./streams-by-id.ts";

setFlagsFromString("--expose-gc");
const collect: (options?: { type: "minor" }) => void = runInNewContext("gc");

/** What a table of streams sees of one. */
const streamOf = (id: number, more: object = {}): Stream => ({ id, ...more }) as unknown as Stream;

test("whichever streams begin and end, each id finds its own, and only those that are open are listed", () => {
  const step = fc.record({ does: fc.constantFrom("begins", "ends", "all end"), id: fc.nat(7) });
  const property = fc.property(fc.array(step, { maxLength: 60 }), (steps) => {
    const [table, map] = [new StreamsById(), new Map<number, Stream>()];
    for (const { does, id } of steps) {
      const stream = map.get(id) ?? streamOf(id);
      if (does === "all end") {
        table.clear();
        map.clear();
      } else if (does === "ends") {
        assert.equal(table.delete(stream), map.delete(id));
      } else if (!map.has(id)) {
        table.add(stream);
        map.set(id, stream);
      }
      assert.equal(table.size, map.size);
      assert.deepEqual(new Set(table), new Set(map.values()));
      for (let each = 0; each < 8; each++) assert.equal(table.get(each), map.get(each));
    }
  });
  fc.assert(property, { numRuns: 300 });
});

test("a stream of the same id that is not the one here ends nothing", () => {
  const table = new StreamsById();
  const stream = streamOf(1);
  table.add(stream);
  assert.equal(table.delete(streamOf(1)), false);
  assert.equal(table.get(1), stream);
});

test("streams that have ended are free at the next minor collection, and leave no places behind", () => {
  const table = new StreamsById();
  /** A few at a time, as connections are. */
  const pass = (from: number, count: number): void => {
    for (let id = from; id < from + count; id++) {
      table.add(streamOf(id, { holds: new Array(1_000).fill(id) }));
      const oldest = table.get(id - 32);
      if (oldest !== undefined) table.delete(oldest);
    }
  };
  pass(0, 1_000);
  collect();
  collect();
  const before = process.memoryUsage().heapUsed;
  pass(1_000, 4_000); // 32 MB
  collect({ type: "minor" });
  collect({ type: "minor" });
  const grown = process.memoryUsage().heapUsed - before;
  assert.ok(grown < 4e6, `${grown} bytes are held`);
  pass(5_000, 300_000);
  collect();
  const places = process.memoryUsage().heapUsed - before;
  assert.ok(places < 1e6, `${places} bytes are held by places`);
});
