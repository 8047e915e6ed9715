import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { test } from "node:test";
import { collectGarbage, RELAY_FLAGS } from "./engine.ts";

/** Node.js ends with an error for a flag that V8 does not know; where a running process sets it, nobody hears of it. */
for (const flag of [...RELAY_FLAGS, "--expose-gc", "--no-expose-gc"]) {
  test(`V8 knows the flag ${flag}`, () => {
    const { status, stderr } = spawnSync(process.execPath, [flag, "--eval", ""], { encoding: "utf8" });
    assert.deepEqual([status, stderr], [0, ""]);
  });
}

test("garbage is collected when it is asked for, and nobody else can ask", async () => {
  const freed = new Promise<void>((resolve) => {
    const registry = new FinalizationRegistry<string>(() => resolve());
    registry.register({}, "an object that nothing holds");
    setTimeout(() => registry, 30_000).unref();
  });
  await new Promise((resolve) => setImmediate(resolve));
  collectGarbage();
  await freed;
  assert.equal("gc" in globalThis, false);
});
