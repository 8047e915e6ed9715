import assert from "node:assert/strict";
import { test } from "node:test";
import { AllowedSources, reachability } from "./sources.ts";

test("connections are taken from this node and from the networks that are named, and from nobody else", () => {
  const sources = new AllowedSources(["10.42.0.0/24", "fd00:42::/64"], () => [
    "100.64.30.10",
    "192.0.2.7",
    "fe80::1%eth0",
  ]);
  const taken = ["127.0.0.1", "127.9.9.9", "::1", "100.64.30.10", "192.0.2.7", "::ffff:192.0.2.7", "10.42.0.9"];
  for (const each of [...taken, "fd00:42::9", "fe80::1%eth0"]) assert.ok(sources.includes(each), each);
  for (const each of ["192.0.2.8", "10.42.1.1", "fd00:43::1", "::ffff:192.0.2.8", ""]) {
    assert.ok(!sources.includes(each), each);
  }
});

const INTERFACES = {
  lo: [
    { cidr: "127.0.0.1/8", internal: true },
    { cidr: "100.64.30.10/32", internal: true },
  ],
  eth0: [
    { cidr: "192.0.2.7/24", internal: false },
    { cidr: "2001:db8::7/64", internal: false },
  ],
};

test("an address of loopback, or one that no interface has, is this node's alone", () => {
  for (const each of ["127.0.0.5", "100.64.30.10", "100.64.30.11", "::1", "fd00::1"]) {
    assert.equal(reachability(each, INTERFACES), undefined, each);
  }
});

test("all addresses, and those in a network of this node, can be reached by others", () => {
  assert.match(reachability("0.0.0.0", INTERFACES) ?? "", /all addresses/);
  assert.match(reachability("::", INTERFACES) ?? "", /all addresses/);
  for (const each of ["192.0.2.7", "192.0.2.99"]) {
    assert.match(reachability(each, INTERFACES) ?? "", /it is in 192\.0\.2\.7\/24, the network of eth0/);
  }
  assert.match(reachability("2001:db8::99", INTERFACES) ?? "", /network of eth0/);
});
