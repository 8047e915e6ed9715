import assert from "node:assert/strict";
import { type TestContext, test } from "node:test";
import { Random } from "../../e2e/harness/random.ts";
import type { Target } from "../../shared/address/target.ts";
import { until } from "../../shared/basics/testing/wait.ts";
import { RouteFault } from "../../shared/dial/proxy-route.ts";
import { type NameResolver, parseServerUrl, type ServerLocation } from "../context/servers.ts";
import { addresses, resolver } from "../testing/name-resolver.ts";
import { Endpoints, type EndpointsOwner } from "./endpoints.ts";

const LOCATION = { host: "tunnel.example.com", port: 443, path: "/t" };
const at = (last: number): Target => ({ host: `10.0.0.${last}`, port: 443 });
const key = (last: number): string => `10.0.0.${last}:443`;
const NONE: ReadonlySet<string> = new Set();

const OWNER: EndpointsOwner = { isDirect: async () => true, isShort: () => false, onAnswer: () => {} };
/** Shuffles nothing. */
const FIRST = () => 0;

/** In the order given, because nothing is shuffled. */
function endpoints(...addresses: Target[]): Endpoints {
  const ways = new Endpoints(LOCATION, OWNER, resolver(), FIRST);
  ways.update(addresses);
  return ways;
}

test("a name with one address or none is dialled as it is", () => {
  assert.equal(endpoints().choose(NONE, false), undefined);
  assert.equal(endpoints(at(1)).choose(NONE, false), undefined);
});

test("an agent without a tunnel dials the name, which has all addresses, and further ones address by address", () => {
  const ways = endpoints(at(1), at(2), at(3));
  assert.equal(ways.choose(NONE, true), undefined);
  assert.deepEqual(ways.choose(new Set([key(1)]), false), at(2));
  assert.deepEqual(ways.choose(new Set([key(1), key(2)]), false), at(3));
});

test("an address that failed comes after those that were not tried for longer", () => {
  const ways = endpoints(at(1), at(2));
  assert.deepEqual(
    [1, 2, 3].map(() => ways.choose(NONE, false)),
    [at(1), at(2), at(1)],
  );
});

test("an address that led to a known server is tried again only where every address is known or held", () => {
  const ways = endpoints(at(1), at(2), at(3));
  ways.ledToKnown(at(2));
  assert.deepEqual(ways.choose(new Set([key(1)]), false), at(3));
  ways.ledToKnown(at(3));
  // Each may be a balancer's: by turns, the longest untried first.
  assert.deepEqual(ways.choose(new Set([key(1)]), false), at(1));
  assert.deepEqual(ways.choose(new Set([key(1)]), false), at(2));
  ways.forget();
  assert.deepEqual(ways.choose(new Set([key(1)]), false), at(3));
});

test("addresses count as servers until they have led to a known one; one that is held counts all the same", () => {
  const ways = endpoints(at(1), at(2), at(3));
  assert.equal(ways.distinct(NONE), 3);
  ways.ledToKnown(at(1));
  ways.ledToKnown(at(2));
  assert.equal(ways.distinct(NONE), 1);
  assert.equal(ways.distinct(new Set([key(1)])), 2);
  assert.equal(endpoints().distinct(NONE), 1);
});

test("what DNS says anew is told apart, and an address that has gone is forgotten", () => {
  const ways = endpoints(at(1), at(2));
  assert.equal(ways.update([at(2), at(1)]), false);
  ways.ledToKnown(at(2));
  assert.equal(ways.update([at(1)]), false);
  assert.equal(ways.update([at(1), at(2)]), true);
  assert.equal(ways.distinct(NONE), 2, "it may be another server's now");
});

test("each agent has an order of its own", () => {
  const numbers = [0.9, 0.1, 0.5];
  const ways = new Endpoints(LOCATION, OWNER, resolver(), () => numbers.shift() ?? 0);
  ways.update([at(1), at(2), at(3)]);
  assert.deepEqual(ways.choose(NONE, false), at(2));
});

test("of SRV records also one alone is dialled, and also first: the name has no address of its own", () => {
  const ways = new Endpoints({ ...LOCATION, srv: "_culvert._tcp.example.com" }, OWNER, resolver());
  const only = { host: "a.example.com", port: 8091 };
  ways.update([only]);
  assert.deepEqual(ways.choose(NONE, true), only);
});

/** SRV records: the host, and its priority and weight. */
function records(random: () => number, ...each: [host: string, priority: number, weight?: number][]): Endpoints {
  const ways = new Endpoints({ ...LOCATION, srv: "_culvert._tcp.example.com" }, OWNER, resolver(), random);
  ways.update(each.map(([host, priority, weight = 1]) => ({ host, port: 1, priority, weight })));
  return ways;
}

test("the next priority of SRV records is tried when none of the lower one can be reached, and then the lower one again", () => {
  const ways = records(() => 0, ["a", 10], ["b", 10], ["c", 20], ["d", 30]);
  const tried = Array.from({ length: 8 }, () => {
    const address = ways.choose(NONE, true);
    ways.failed(address);
    return address?.host;
  });
  assert.deepEqual(tried, ["a", "b", "c", "d", "a", "b", "c", "d"]);
});

test("while one of the lowest priority can be reached, no other is a server, also not for a second tunnel", () => {
  const ways = records(() => 0, ["a", 10], ["b", 10], ["c", 20]);
  assert.equal(ways.distinct(NONE), 2);
  ways.failed({ host: "b", port: 1 });
  const held = new Set(["a:1"]);
  assert.deepEqual([ways.choose(held, false)?.host, ways.choose(held, false)?.host], ["b", "b"]);
  ways.failed({ host: "a", port: 1 });
  assert.deepEqual([ways.choose(NONE, true)?.host, ways.distinct(NONE)], ["c", 1]);
  ways.reached({ host: "b", port: 1 });
  assert.deepEqual([ways.choose(NONE, true)?.host, ways.distinct(NONE)], ["b", 2]);
});

test("before an address come those of lower priorities that no other uplink has, the lowest first", () => {
  const ways = records(() => 0, ["c", 20], ["d", 30], ["a", 10], ["b", 10]);
  const before = (host: string, priority: number) =>
    ways.before({ host, port: 1, priority }, new Set(["a:1"])).map((address) => address.host);
  assert.deepEqual([before("d", 30), before("c", 20), before("b", 10)], [["b", "c"], ["b"], []]);
});

test("a host of great weight is chosen first more often, and one of weight 0 seldom", () => {
  const random = new Random(7);
  const first = { a: 0, b: 0, c: 0 };
  for (let agent = 0; agent < 4_000; agent++) {
    const host = records(() => random.next(), ["a", 1, 30], ["b", 1, 10], ["c", 1, 0]).choose(NONE, true)?.host;
    first[host as keyof typeof first]++;
  }
  assert.ok(Math.abs(first.a / first.b - 3) < 0.5, JSON.stringify(first));
  assert.ok(first.c < 100, JSON.stringify(first));
});

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

/** Endpoints that ask DNS, and for each answer whether it had a new address. */
function asking(t: TestContext, location: ServerLocation, change: Partial<NameResolver>, isDirect = true) {
  const answers: boolean[] = [];
  const owner: EndpointsOwner = {
    ...OWNER,
    isDirect: async () => isDirect,
    onAnswer: (isNew) => void answers.push(isNew),
  };
  const ways = new Endpoints(location, owner, resolver(change), FIRST);
  t.after(() => ways.close());
  ways.refresh();
  return { answers, ways };
}

test("through a proxy no name is resolved here: the proxy does it", async (t) => {
  let asked = 0;
  const find = async () => {
    asked++;
    return [];
  };
  const { answers } = asking(t, NAMED, { find }, false);
  await until(() => answers.length === 1);
  assert.deepEqual([answers, asked], [[false], 0]);
});

test("an address is not asked for", async (t) => {
  const { answers } = asking(t, parseServerUrl("wss://10.0.0.1"), { find: addresses("10.0.0.9") });
  const other = asking(t, NAMED, { find: addresses("10.0.0.1") });
  await until(() => other.answers.length === 1);
  assert.deepEqual(answers, []);
});

const RECORDS = parseServerUrl("wss+srv://_culvert._tcp.example.com");

test("SRV records that do not resolve any more leave what was known", async (t) => {
  const pass = mockTime(t);
  let asked = 0;
  const srv: NameResolver["srv"] = async () => {
    if (++asked > 1) throw new Error("ENOTFOUND");
    return [{ name: "a.example.com", port: 8091, priority: 1, weight: 0 }];
  };
  const { ways } = asking(t, RECORDS, { srv });
  await ways.resolved(t.signal);
  pass(20_000);
  await until(() => asked === 2);
  await new Promise(setImmediate);
  await ways.resolved(t.signal);
  assert.deepEqual(ways.choose(NONE, true), { host: "a.example.com", port: 8091, priority: 1, weight: 0 });
});

test("SRV records that have never resolved are a fault of the attempt that waits for them", async (t) => {
  const { ways } = asking(t, RECORDS, {});
  await assert.rejects(
    ways.resolved(t.signal),
    (error) => error instanceof RouteFault && error.fault === "dns" && /ENOTFOUND/.test(error.message),
  );
});

test("asked for anew a moment later, DNS is asked once more and not at once", async (t) => {
  const pass = mockTime(t);
  let asked = 0;
  const find: NameResolver["find"] = async (name) => {
    asked++;
    return addresses("10.0.0.1")(name);
  };
  const { answers, ways } = asking(t, NAMED, { find });
  await until(() => answers.length === 1);
  for (let times = 0; times < 10; times++) ways.refresh();
  assert.equal(asked, 1);
  pass(1_100);
  await until(() => answers.length === 2);
  assert.equal(asked, 2);
});
