import assert from "node:assert/strict";
import { test } from "node:test";
import { defaultsOf } from "../../shared/config/options.ts";
import { createLogger } from "../../shared/runtime/logger.ts";
import { serverOptions } from "../options/options.ts";
import { countServers, ServerCount } from "./server-count.ts";

test("a change of the number of servers is told once to each listener, until it listens no more", () => {
  const count = new ServerCount();
  const told: string[] = [];
  const endOne = count.onChange((value) => told.push(`one ${value}`));
  count.onChange((value) => told.push(`two ${value}`));
  assert.equal(count.value, undefined);
  count.set(3);
  count.set(3);
  endOne();
  count.set(2);
  assert.deepEqual(told, ["one 3", "two 3", "two 2"]);
  assert.equal(count.value, 2);
});

test("without a Service and without leases nothing counts", async () => {
  const options = { ...defaultsOf(serverOptions), serverCountService: "", enableLeaseController: false };
  const log = createLogger({ level: "silent", format: "json", name: "test" });
  assert.equal(await countServers(options, new ServerCount(), log), undefined);
});
