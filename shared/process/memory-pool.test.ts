import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { MemoryMetrics } from "./memory-metrics.ts";
import { MemoryPool } from "./memory-pool.ts";
import { Instruments } from "./metrics.ts";

const RUNS = process.env["CI"] === "true" ? 5_000 : 500;

test("a pool is used up above its limit, and usable again below 90 % of it", () => {
  const pool = new MemoryPool(1_000);
  const seen = [1_000, 1, -100, -1, -1, 100, 1].map((delta) => {
    pool.hold(delta);
    return [pool.held, pool.isSpent];
  });
  assert.deepEqual(seen, [
    [1_000, false],
    [1_001, true],
    [901, true],
    [900, true],
    [899, false],
    [999, false],
    [1_000, false],
  ]);
});

test("credit has to fit beside what is held, and refuses nobody by itself", () => {
  const pool = new MemoryPool(1_000);
  pool.hold(400);
  assert.equal(pool.reserve(601), false);
  assert.equal(pool.reserve(600), true);
  assert.equal(pool.reserve(1), false);
  assert.equal(pool.isSpent, false);
  pool.hold(600);
  assert.equal(pool.isSpent, false, "what is held is at the limit, not above it");
  pool.release(600);
  assert.equal(pool.reserved, 0);
  assert.equal(pool.reserve(1), false);
  pool.hold(-100);
  assert.equal(pool.reserve(100), true);
});

test("a pool that is used up gives no credit until it is lifted, although some would fit", () => {
  const pool = new MemoryPool(1_000);
  pool.hold(1_001);
  pool.hold(-51);
  assert.equal(pool.reserve(10), false);
  pool.hold(-51);
  assert.equal(pool.reserve(10), true);
});

test("whatever comes and goes, in whatever pieces, the pool is at 0 when all has gone", () => {
  const piece = fc.record({ bytes: fc.nat(400), credit: fc.nat(400), stays: fc.nat(5) });
  const property = fc.property(fc.integer({ min: 1, max: 2_000 }), fc.array(piece), (limit, pieces) => {
    const pool = new MemoryPool(limit);
    const present: { bytes: number; credit: number; until: number }[] = [];
    const sum = (of: "bytes" | "credit") => present.reduce((total, each) => total + each[of], 0);
    const leave = (at: number) => {
      for (const gone of present.filter(({ until }) => until <= at)) {
        present.splice(present.indexOf(gone), 1);
        pool.release(gone.credit);
        const before = pool.isSpent;
        pool.hold(-gone.bytes);
        assert.equal(pool.isSpent, before && pool.held >= limit * 0.9);
      }
    };
    for (const [at, { bytes, credit, stays }] of pieces.entries()) {
      leave(at);
      const granted = pool.reserve(credit);
      assert.equal(granted, !pool.isSpent && sum("bytes") + sum("credit") + credit <= limit);
      present.push({ bytes, credit: granted ? credit : 0, until: at + stays });
      pool.hold(bytes);
      if (sum("bytes") > limit) assert.equal(pool.isSpent, true);
      assert.deepEqual([pool.held, pool.reserved], [sum("bytes"), sum("credit")]);
    }
    leave(Number.POSITIVE_INFINITY);
    assert.deepEqual([pool.held, pool.reserved, pool.isSpent], [0, 0, false]);
  });
  fc.assert(property, { numRuns: RUNS });
});

test("metrics show what is held, promised, allowed and refused; zeros before there is a pool", async () => {
  const make = new Instruments({ processMetrics: false });
  const metrics = new MemoryMetrics(make, "agent");
  const values = async () =>
    (await make.registry.metrics()).split("\n").filter((line) => line !== "" && !line.startsWith("#"));
  assert.deepEqual(
    (await values()).map((line) => line.split(" ")[1]),
    ["0", "0", "0", "0"],
  );
  const pool = new MemoryPool(1_000);
  metrics.watch(pool);
  pool.reserve(30);
  pool.hold(1_200);
  pool.onRefused();
  assert.deepEqual(await values(), [
    "culvert_agent_memory_held_bytes 1200",
    "culvert_agent_memory_reserved_bytes 30",
    "culvert_agent_memory_limit_bytes 1000",
    "culvert_agent_streams_refused_for_memory_total 1",
  ]);
});
