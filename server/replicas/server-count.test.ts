import assert from "node:assert/strict";
import { test } from "node:test";
import { ServerCount } from "./server-count.ts";

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
