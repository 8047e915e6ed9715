import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { test } from "node:test";
import { RUN_SOURCES, source } from "../runtime/testing/project.ts";
import { collectGarbage, heapBytes, RELAY_FLAGS } from "./engine.ts";

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

test("the heap has a size, also where no file descriptor is left", () => {
  assert.ok(heapBytes("taken") >= heapBytes("used"));
  const script = `
    import { openSync } from "node:fs";
    const { heapBytes } = await import(process.argv[1]);
    try { for (;;) openSync("/dev/null"); } catch {}
    process.stderr.write(String(heapBytes("used") > 0));`;
  const args = [...RUN_SOURCES, "--input-type=module", "-e", script, source("engine.ts", import.meta.url).href];
  const { stderr } = spawnSync("sh", ["-c", 'ulimit -n 200 && exec "$0" "$@"', process.execPath, ...args]);
  assert.equal(String(stderr), "true");
});
