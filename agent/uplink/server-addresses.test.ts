import assert from "node:assert/strict";
import { test } from "node:test";
import { addresses, hosts, resolver } from "../testing/name-resolver.ts";
import { findAddresses } from "./server-addresses.ts";
import { parseServerUrl } from "./servers.ts";

const NAMED = parseServerUrl("wss://tunnel.example.com:8091");

test("of a name with addresses of both families those of one are servers", async () => {
  for (const [found, expected] of [
    [
      ["10.0.0.1", "10.0.0.2"],
      ["10.0.0.1", "10.0.0.2"],
    ],
    [["fd00::1", "10.0.0.1"], ["fd00::1"]],
    [["10.0.0.1", "fd00::1"], ["10.0.0.1"]],
    [
      ["fd00::1", "10.0.0.1", "10.0.0.2"],
      ["10.0.0.1", "10.0.0.2"],
    ],
    [
      ["10.0.0.1", "fd00::1", "10.0.0.2", "fd00::2"],
      ["10.0.0.1", "10.0.0.2"],
    ],
    [["10.0.0.1", "10.0.0.1"], ["10.0.0.1"]],
    [[], []],
  ] as const) {
    const { addresses: seen } = await findAddresses(NAMED, resolver({ lookup: addresses(...found) }));
    assert.deepEqual(
      seen.map(({ host }) => host),
      expected,
      found.join(),
    );
  }
});

test("an answer is asked for again at its TTL, within bounds, and soon where none is known", async () => {
  for (const [seconds, ms] of [
    [60, 60_000],
    [0, 5_000],
    [86_400, 300_000],
    [undefined, 15_000],
  ] as const) {
    const ttl = async () => seconds ?? Promise.reject(new Error("of the hosts file"));
    const { askAgainMs } = await findAddresses(NAMED, resolver({ lookup: addresses("10.0.0.1"), ttl }));
    assert.equal(askAgainMs, ms);
  }
});

test("an answer of any length is bounded", async () => {
  const many = Array.from({ length: 300 }, (_, index) => `10.0.${index >> 8}.${index & 255}`);
  const { addresses: seen } = await findAddresses(NAMED, resolver({ lookup: addresses(...many) }));
  assert.equal(seen.length, 64);
});

test("SRV records say hosts and ports; those of a higher number are for when the first ones have gone", async () => {
  const srv = async () => [
    { name: "b.example.com", port: 2, priority: 20, weight: 0 },
    { name: "a.example.com", port: 1, priority: 10, weight: 0 },
    { name: "c.example.com", port: 3, priority: 10, weight: 0 },
  ];
  const location = parseServerUrl("wss+srv://_culvert._tcp.example.com");
  const { addresses: seen } = await findAddresses(location, resolver({ srv, ttl: async () => 30 }));
  assert.deepEqual(hosts(seen), ["a.example.com 1", "c.example.com 3"]);
});

test("SRV records without a host are no servers, and an answer without servers is a failure", async () => {
  const location = parseServerUrl("wss+srv://_culvert._tcp.example.com");
  for (const names of [[], [""], ["."]]) {
    const srv = async () => names.map((name) => ({ name, port: 0, priority: 0, weight: 0 }));
    await assert.rejects(findAddresses(location, resolver({ srv })), /no record names a host/);
  }
});

test("with --server-address its name is asked for in place of the server's", async () => {
  const asked: string[] = [];
  const lookup = (name: string) => {
    asked.push(name);
    return addresses("10.0.0.1")(name);
  };
  const location = { ...NAMED, address: { host: "lb.example.com", port: 7 } };
  const { addresses: seen } = await findAddresses(location, resolver({ lookup }));
  assert.deepEqual([asked, hosts(seen)], [["lb.example.com"], ["10.0.0.1 7"]]);
});
