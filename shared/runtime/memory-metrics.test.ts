import assert from "node:assert/strict";
import { test } from "node:test";
import { MemoryPool } from "../limits/memory-pool.ts";
import { MemoryMetrics } from "./common-metrics.ts";
import { Instruments } from "./metrics.ts";

test("a cluster that was removed and has come back is one figure: what both hold", async () => {
  const instruments = new Instruments({ processMetrics: false });
  const metrics = new MemoryMetrics(instruments, "server");
  const pool = new MemoryPool(1e9);
  metrics.watch(pool);
  const before = pool.share("blue");
  before.hold(5_000);
  before.close();
  pool.share("blue").hold(7);
  const text = await instruments.registry.metrics();
  assert.match(text, /^culvert_server_memory_held_bytes\{cluster="blue"\} 5007$/m);
});
