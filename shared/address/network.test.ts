import assert from "node:assert/strict";
import { test } from "node:test";
import { networkOf } from "./network.ts";

for (const [addresses, network] of [
  [["192.0.2.7", "::ffff:192.0.2.7", "::FFFF:192.0.2.7"], "192.0.2.7"],
  [["2001:db8::1", "2001:DB8:0:0:ffff::2", "2001:db8:0:0:1:2:3:4"], "2001:db8:0:0"],
  [["2001:db8:0:1::1"], "2001:db8:0:1"],
  [["::1", "::2"], "0:0:0:0"],
] as const) {
  for (const address of addresses) {
    test(`${address} counts as ${network}`, () => assert.equal(networkOf(address), network));
  }
}
