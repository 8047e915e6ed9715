import assert from "node:assert/strict";
import { test } from "node:test";
import { AnnouncedCount } from "./uplink-set.ts";

test("a number of servers that comes too soon is looked at again, and keeps no process running that could end", (t) => {
  t.mock.method(performance, "now", () => 0);
  const running = () => process.getActiveResourcesInfo().filter((each) => each === "Timeout").length;
  const waits = t.mock.method(globalThis, "setTimeout");
  const announced = new AnnouncedCount();
  const before = running();
  assert.deepEqual(
    [announced.take([2], assert.fail), announced.take([3], () => {}), announced.servers],
    [true, false, 2],
  );
  assert.deepEqual([waits.mock.callCount(), running()], [1, before]);
});
