import assert from "node:assert/strict";
import { test } from "node:test";
import type { Target } from "../../shared/address/target.ts";
import { Endpoints } from "./endpoints.ts";

const LOCATION = { host: "tunnel.example.com", port: 443, path: "/t" };
const at = (last: number): Target => ({ host: `10.0.0.${last}`, port: 443 });
const key = (last: number): string => `10.0.0.${last}:443`;
const NONE: ReadonlySet<string> = new Set();

/** In the order given, because nothing is shuffled. */
function endpoints(...addresses: Target[]): Endpoints {
  const ways = new Endpoints(LOCATION, () => 0);
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
  const ways = new Endpoints(LOCATION, () => numbers.shift() ?? 0);
  ways.update([at(1), at(2), at(3)]);
  assert.deepEqual(ways.choose(NONE, false), at(2));
});

test("of SRV records also one alone is dialled, and also first: the name has no address of its own", () => {
  const ways = new Endpoints({ ...LOCATION, srv: "_culvert._tcp.example.com" });
  const only = { host: "a.example.com", port: 8091 };
  ways.update([only]);
  assert.deepEqual(ways.choose(NONE, true), only);
});
