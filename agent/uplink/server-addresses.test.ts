import assert from "node:assert/strict";
import { type TestContext, test } from "node:test";
import type { Target } from "../../shared/address/target.ts";
import { until } from "../../shared/basics/testing/wait.ts";
import { AddressWatch, findAddresses, type NameResolver } from "./server-addresses.ts";
import { parseServerUrl, type ServerLocation } from "./servers.ts";

const NAMED = parseServerUrl("wss://tunnel.example.com:8091");

/** A resolver that answers as the test says. */
function resolver(change: Partial<NameResolver> = {}): NameResolver {
  const missing = () => Promise.reject(new Error("ENOTFOUND"));
  return { lookup: missing, ttl: missing, srv: missing, ...change };
}

function addresses(...found: string[]): NameResolver["lookup"] {
  return async () => found.map((address) => ({ address, family: address.includes(":") ? 6 : 4 }));
}

const hosts = (targets: readonly Target[]): string[] => targets.map(({ host, port }) => `${host} ${port}`);

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

/** Stops the clock and returns what lets time pass, ms. */
function mockTime(t: TestContext): (ms: number) => void {
  let nowMs = performance.now();
  t.mock.method(performance, "now", () => nowMs);
  t.mock.timers.enable({ apis: ["setTimeout"] });
  return (ms) => {
    nowMs += ms;
    t.mock.timers.tick(ms);
  };
}

function watched(t: TestContext, location: ServerLocation, change: Partial<NameResolver>, isDirect = true) {
  const seen: (readonly Target[])[] = [];
  const watch = new AddressWatch({
    ...{ location, resolver: resolver(change), isDirect: async () => isDirect, isShort: () => false },
    onChange: (found) => seen.push(found),
  });
  t.after(() => watch.close());
  watch.refresh();
  return { seen, watch };
}

test("through a proxy no name is resolved here: the proxy does it", async (t) => {
  let asked = 0;
  const lookup = async () => {
    asked++;
    return [];
  };
  const { seen } = watched(t, NAMED, { lookup }, false);
  await until(() => seen.length === 1);
  assert.deepEqual([seen, asked], [[[]], 0]);
});

test("an address is not asked for", async (t) => {
  const { seen } = watched(t, parseServerUrl("wss://10.0.0.1"), { lookup: addresses("10.0.0.9") });
  const other = watched(t, NAMED, { lookup: addresses("10.0.0.1") });
  await until(() => other.seen.length === 1);
  assert.deepEqual(seen, []);
});

test("a name that does not resolve any more leaves what was known", async (t) => {
  const pass = mockTime(t);
  const answers = [addresses("10.0.0.1"), resolver().lookup];
  const { seen, watch } = watched(t, NAMED, { lookup: (name) => (answers.shift() ?? assert.fail())(name) });
  await watch.answered;
  assert.equal(watch.fault, undefined);
  pass(20_000);
  await until(() => watch.fault !== undefined);
  assert.deepEqual(seen.map(hosts), [["10.0.0.1 8091"]]);
});

test("asked for anew a moment later, DNS is asked once more and not at once", async (t) => {
  const pass = mockTime(t);
  let asked = 0;
  const lookup: NameResolver["lookup"] = async (name) => {
    asked++;
    return addresses("10.0.0.1")(name);
  };
  const { seen, watch } = watched(t, NAMED, { lookup });
  await until(() => seen.length === 1);
  for (let times = 0; times < 10; times++) watch.refresh();
  assert.equal(asked, 1);
  pass(1_100);
  await until(() => seen.length === 2);
  assert.equal(asked, 2);
});
