import assert from "node:assert/strict";
import { test } from "node:test";
import { wideNetworks } from "./wide-networks.ts";

test("a network is wide when nobody's own is as wide", () => {
  const wide = ["0.0.0.0/0", "::/0", "0.0.0.0/1", "128.0.0.0/1", "8.0.0.0/7", "2000::/3", "::ffff:0.0.0.0/96"];
  const own = ["10.0.0.0/8", "fc00::/7", "192.168.0.0/16", "203.0.113.7", "2001:db8::1", "::ffff:10.0.0.0/104"];
  assert.deepEqual(wideNetworks([...own, ...wide]), wide);
});
