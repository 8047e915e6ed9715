import assert from "node:assert/strict";
import { test } from "node:test";
import { Lease, LeaseBook } from "./leases.ts";

const WALL = Date.parse("2026-06-01T12:00:00Z");
const SECOND = 1_000;
const at = (ms: number): string => new Date(WALL + ms).toISOString().replace("Z", "000Z");

function lease(name: string, resourceVersion: string, spec: Lease["spec"]): Lease {
  return { metadata: { name, resourceVersion }, spec: { leaseDurationSeconds: 30, ...spec } };
}

test("a lease that is seen for the first time is valid as in Konnectivity: until its duration after its last renewal", () => {
  for (const [spec, valid] of [
    [{ renewTime: at(-29 * SECOND) }, 1],
    [{ renewTime: at(-31 * SECOND) }, 0],
    [{ renewTime: at(-31 * SECOND), acquireTime: at(0) }, 0],
    [{ acquireTime: at(-1 * SECOND) }, 1],
    [{ renewTime: at(3_600 * SECOND) }, 1],
    [{}, 0],
    [{ renewTime: at(-1 * SECOND), leaseDurationSeconds: null }, 0],
    [{ renewTime: "yesterday" }, 0],
  ] as const) {
    assert.equal(new LeaseBook().count([lease("a", "1", spec)], 0, WALL).valid, valid, JSON.stringify(spec));
  }
});

test("a lease without a spec, which the API allows, has ended", () => {
  const empty = Lease.parse({ metadata: { name: "empty", resourceVersion: "1" } });
  const valid = lease("valid", "1", { renewTime: at(0) });
  assert.equal(new LeaseBook().count([empty, valid], 0, WALL).valid, 1);
});

test("it is to be counted again when the first lease ends or becomes stale", () => {
  const leases = [-10, -20, -40].map((s, i) => lease(`${i}`, "1", { renewTime: at(s * SECOND) }));
  assert.equal(new LeaseBook().count(leases, 5 * SECOND, WALL).nextMs, 10 * SECOND);
  assert.equal(new LeaseBook().count(leases.slice(2), 5 * SECOND, WALL).nextMs, 30 * SECOND);
  assert.equal(new LeaseBook().count([], 0, WALL).nextMs, undefined);
});

test("once a renewal was seen the clocks of other servers do not matter", () => {
  const book = new LeaseBook();
  const old = at(-3_600 * SECOND); // a clock that is an hour behind
  assert.equal(book.count([lease("a", "1", { renewTime: old })], 0, WALL).valid, 0);
  assert.equal(book.count([lease("a", "2", { renewTime: old })], 10 * SECOND, WALL).valid, 1);
  assert.equal(book.count([lease("a", "2", { renewTime: old })], 39 * SECOND, WALL).valid, 1);
  assert.equal(book.count([lease("a", "2", { renewTime: old })], 41 * SECOND, WALL).valid, 0);
});

test("a clock that is ahead makes a lease no longer", () => {
  const book = new LeaseBook();
  const ahead = [lease("a", "1", { renewTime: at(3_600 * SECOND) })];
  assert.equal(book.count(ahead, 0, WALL).nextMs, 30 * SECOND);
  assert.equal(book.count(ahead, 31 * SECOND, WALL + 31 * SECOND).valid, 0);
});

test("a lease is stale when it was watched for its whole duration without a renewal, and no sooner", () => {
  const book = new LeaseBook();
  const dead = [lease("a", "7", { renewTime: at(-60 * SECOND) })];
  assert.deepEqual(book.count(dead, 0, WALL).stale, []);
  assert.deepEqual(book.count(dead, 29 * SECOND, WALL).stale, []);
  assert.deepEqual(book.count(dead, 31 * SECOND, WALL).stale, [{ name: "a", version: "7" }]);
  assert.deepEqual(book.count([], 32 * SECOND, WALL).stale, []);
});
