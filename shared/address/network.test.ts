import assert from "node:assert/strict";
import { BlockList } from "node:net";
import { test } from "node:test";
import fc from "fast-check";
import { formatNetwork, NetworkMap, networkOf, parseCidr } from "./network.ts";

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

test("the longest prefix that covers an address comes first", () => {
  const map = new NetworkMap<string>();
  for (const network of ["10.0.0.0/8", "0.0.0.0/0", "10.1.2.0/24", "10.1.0.0/16", "fd00::/8", "10.1.2.3/32", "::/0"]) {
    map.set(network, network);
  }
  assert.deepEqual(
    [...map.covering("10.1.2.3")],
    ["10.1.2.3/32", "10.1.2.0/24", "10.1.0.0/16", "10.0.0.0/8", "0.0.0.0/0"],
  );
  assert.deepEqual([...map.covering("10.1.3.3")], ["10.1.0.0/16", "10.0.0.0/8", "0.0.0.0/0"]);
  assert.deepEqual([...map.covering("fd12::1")], ["fd00::/8", "::/0"]);
  map.delete("10.1.0.0/16");
  map.delete("10.9.0.0/16");
  assert.deepEqual([...map.covering("10.1.3.3")], ["10.0.0.0/8", "0.0.0.0/0"]);
  assert.equal(map.get("10.1.2.0/24"), "10.1.2.0/24");
  assert.equal(map.get("10.1.0.0/16"), undefined);
});

/** Of few octets, so that networks cover each other. */
const octet = fc.constantFrom(0, 10, 127, 128, 255);
const ipv4 = fc.tuple(octet, octet, octet, octet).map((octets) => octets.join("."));

test("an address is found in the same networks as by node:net", () => {
  const networks = fc
    .array(
      fc.oneof(fc.tuple(ipv4, fc.integer({ min: 0, max: 32 })), fc.tuple(fc.ipV6(), fc.integer({ min: 0, max: 128 }))),
      { maxLength: 12 },
    )
    .map((pairs) => pairs.map(([address, bits]) => formatNetwork(parseCidr(`${address}/${bits}`))));
  fc.assert(
    fc.property(networks, ipv4, (all, address) => {
      const map = new NetworkMap<string>();
      for (const network of all) map.set(network, network);
      const expected = [...new Set(all)].filter((network) => {
        const parsed = parseCidr(network);
        const list = new BlockList();
        list.addSubnet(parsed.network, parsed.prefix);
        return parsed.network.family === "ipv4" && list.check(address, "ipv4");
      });
      const prefixOf = (network: string) => parseCidr(network).prefix;
      assert.deepEqual(
        [...map.covering(address)],
        expected.sort((one, other) => prefixOf(other) - prefixOf(one)),
      );
    }),
  );
});
