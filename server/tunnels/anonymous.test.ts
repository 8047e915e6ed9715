import assert from "node:assert/strict";
import { test } from "node:test";
import { AnonymousCarriers } from "./anonymous.ts";

const CROWDED = { code: "overloaded", retryAfterMs: 1_000 };

test("one address has a quarter of what a cluster takes, and another cluster has its own", () => {
  const carriers = new AnonymousCarriers(8);
  carriers.enter("blue", "10.0.0.1");
  carriers.enter("blue", "10.0.0.1");
  assert.throws(() => carriers.enter("blue", "10.0.0.1"), CROWDED);
  for (const host of [2, 2, 3, 3, 4, 4]) carriers.enter("blue", `10.0.0.${host}`);
  assert.throws(() => carriers.enter("blue", "10.0.0.5"), CROWDED);
  carriers.enter("green", "10.0.0.1");
});

test("who is known, or gone, makes room once", () => {
  const carriers = new AnonymousCarriers(4);
  const leave = carriers.enter("blue", "10.0.0.1");
  leave();
  leave();
  const again = carriers.enter("blue", "10.0.0.1");
  assert.throws(() => carriers.enter("blue", "10.0.0.1"), CROWDED);
  again();
  carriers.enter("blue", "10.0.0.1");
});

test("the addresses of one IPv6 network are one source, and those of IPv4 each its own", () => {
  const carriers = new AnonymousCarriers(8);
  carriers.enter("blue", "2001:db8::1");
  carriers.enter("blue", "2001:db8:0:0:ffff::2");
  assert.throws(() => carriers.enter("blue", "2001:DB8:0:0:1:2:3:4"), CROWDED);
  carriers.enter("blue", "2001:db8:0:1::1");
  for (const host of [1, 2, 3, 4]) carriers.enter("blue", `::ffff:10.0.0.${host}`);
});
