import assert from "node:assert/strict";
import { test } from "node:test";
import type { ProxyRoute } from "./proxy-route.ts";
import { parseProxyUrl } from "./proxy-route.ts";
import { RouteHistory } from "./proxy-routes.ts";

const [A, B, C] = ["a", "b", "c"].map(
  (text): ProxyRoute => ({ kind: "proxy", proxy: parseProxyUrl(text), from: "test", isUnverified: false }),
) as [ProxyRoute, ProxyRoute, ProxyRoute];
const ALL = [A, B, C];

test("without a memory, the order is the one in which they were named", () => {
  assert.deepEqual(new RouteHistory(() => 0).order(ALL), ALL);
});

test("the one that worked last comes first, until it fails", () => {
  const memory = new RouteHistory(() => 0);
  memory.worked(B);
  memory.worked(C);
  assert.deepEqual(memory.order(ALL), [C, A, B]);
  memory.failed(C);
  assert.deepEqual(memory.order(ALL), [A, B, C]);
});

test("those that failed are behind the others, the freshest failure last", () => {
  let now = 0;
  const memory = new RouteHistory(() => now);
  memory.failed(A);
  now += 1;
  memory.failed(B);
  assert.deepEqual(memory.order(ALL), [C, A, B]);
  now += 1;
  memory.failed(A);
  assert.deepEqual(memory.order(ALL), [C, B, A]);
});

test("one that works has not failed", () => {
  const memory = new RouteHistory(() => 0);
  memory.failed(A);
  memory.worked(A);
  memory.worked(B);
  assert.deepEqual(memory.order(ALL), [B, A, C]);
});

test("after five minutes a failure is forgotten", () => {
  let now = 0;
  const memory = new RouteHistory(() => now);
  memory.failed(A);
  now += 5 * 60_000 - 1;
  assert.deepEqual(memory.order(ALL), [B, C, A]);
  now += 1;
  assert.deepEqual(memory.order(ALL), ALL);
});

test("a way was cut short until it has failed with all its time, or another one works", () => {
  const memory = new RouteHistory(() => 0);
  memory.cutShort(A);
  memory.cutShort(B);
  assert.deepEqual(memory.order(ALL), [C, A, B]);
  memory.failed(B);
  assert.deepEqual(
    ALL.map((way) => memory.wasCutShort(way)),
    [true, false, false],
  );
  memory.worked(C);
  assert.ok(!memory.wasCutShort(A));
});
