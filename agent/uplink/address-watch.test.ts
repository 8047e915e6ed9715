import assert from "node:assert/strict";
import { type TestContext, test } from "node:test";
import type { Target } from "../../shared/address/target.ts";
import { until } from "../../shared/basics/testing/wait.ts";
import { addresses, hosts, resolver } from "../testing/name-resolver.ts";
import { AddressWatch } from "./address-watch.ts";
import type { NameResolver } from "./server-addresses.ts";
import { parseServerUrl, type ServerLocation } from "./servers.ts";

const NAMED = parseServerUrl("wss://tunnel.example.com:8091");

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
