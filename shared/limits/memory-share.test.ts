import assert from "node:assert/strict";
import { test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { until } from "../basics/testing/wait.ts";
import { PRESSURE } from "./memory-account.ts";
import { MemoryPool } from "./memory-pool.ts";
import { Held, MOVING } from "./testing/held.ts";

const MIB = 1024 * 1024;
const CAP = 16 * MIB;
const { none, over, slowed, full } = PRESSURE;

function capped() {
  const pool = new MemoryPool(10_000 * MIB);
  const [red, blue] = [pool.share("red"), pool.share("blue")];
  red.cap = CAP;
  return { pool, red, blue };
}

test("a cluster whose readers all move gets nothing new above limits.memory, until it holds less", async () => {
  const { pool, red, blue } = capped();
  const neighbour = new Held(blue, 100 * MIB, MOVING);
  const connections: Held[] = [];
  while (red.pressure < full && connections.length < 875) {
    connections.push(new Held(red, MIB, MOVING));
    await sleep(1);
  }
  assert.equal(red.pressure, full, `${red.held / MIB} MiB are held, and another connection may begin`);
  assert.deepEqual([red.capPressure, blue.pressure, neighbour.held], [full, none, 100 * MIB]);
  for (const connection of connections) connection.evict();
  assert.deepEqual([red.held, red.pressure, pool.pressure], [0, none, none]);
});

test("connections that all move end, those that hold most first, while their cluster stays above twice its cap", async () => {
  const { red, blue } = capped();
  const neighbour = new Held(blue, 100 * MIB, MOVING);
  const large = Array.from({ length: 2 }, () => new Held(red, 3 * MIB, MOVING));
  const small = Array.from({ length: 40 }, () => new Held(red, MIB, MOVING));
  await until(() => red.held <= 2 * CAP);
  assert.equal(red.held, 2 * CAP, `${red.held / MIB} MiB are held`);
  assert.deepEqual(
    [large, small].map((connections) => connections.filter(({ held }) => held > 0).length),
    [0, 32],
  );
  assert.equal(neighbour.held, 100 * MIB);
});

test("the connection that holds most can be evicted, whoever moves, and tells what that has freed", () => {
  const { pool, red, blue } = capped();
  const [small, large] = [new Held(red, MIB, 1_000), new Held(red, 3 * MIB, MOVING)];
  const neighbour = new Held(blue, 100 * MIB, 1_000);
  assert.equal(red.evictLargest(), 3 * MIB);
  assert.deepEqual([small.held, large.held, neighbour.held, pool.ended], [MIB, 0, 100 * MIB, 1]);
  assert.deepEqual([red.evictLargest(), red.evictLargest()], [MIB, 0]);
});

test("moments above twice the cap end nothing that moves and refuse no stream", () => {
  const { red } = capped();
  const begun = performance.now() + 60_000; // the clock of this test runs ahead
  const connection = new Held(red, 3 * CAP, MOVING);
  assert.equal(red.reclaimToCap(begun), 0);
  red.hold(-3 * CAP);
  red.hold(3 * CAP);
  assert.equal(red.reclaimToCap(begun + 1_500), 0);
  assert.equal(red.pressure, slowed);
  assert.equal(red.reclaimToCap(begun + 2_600), 1, "a second without a break");
  assert.equal(connection.held, 0);
});

test("windows give back their growth where a cluster holds and promises more than its cap", () => {
  const { red, blue } = capped();
  assert.equal(red.reserve(10 * MIB), true);
  assert.equal(red.mustShrink, false);
  red.hold(7 * MIB);
  assert.deepEqual([red.mustShrink, blue.mustShrink], [true, false]);
  red.release(10 * MIB);
  assert.equal(red.mustShrink, false);
  red.hold(-7 * MIB);
});

test("a cap that is lowered ends what has stopped at once", async () => {
  const { red } = capped();
  const connections = [1, 2, 3].map(() => new Held(red, 5 * MIB, 1_000));
  red.cap = 10 * MIB;
  await until(() => red.held <= 10 * MIB);
  assert.equal(connections.filter(({ held }) => held > 0).length, 1);
});

test("a cap that is raised above what connections hold ends none of them for what links keep", () => {
  const { red } = capped();
  const begun = performance.now();
  red.links.hold(3 * CAP);
  const connection = new Held(red, CAP - MIB, 10_000);
  red.cap = 10 * MIB;
  assert.equal(red.reclaimToCap(begun - 5_000), 1, "connections alone held more");
  assert.equal(connection.held, 0);
  const other = new Held(red, CAP - MIB, -10_000);
  assert.equal(red.reclaimToCap(begun), 0);
  red.cap = CAP;
  assert.equal(red.reclaimToCap(begun + 20_000), 0);
  assert.equal(other.held, CAP - MIB);
});

test("what a link keeps ends, slows down and refuses no connection of a cluster with limits.memory", () => {
  const { red } = capped();
  const begun = performance.now() - 5_000;
  red.links.hold(3 * CAP);
  const stopped = new Held(red, MIB, 10_000);
  const moving = new Held(red, 2 * MIB, MOVING);
  const ended = [0, 500, 1_000, 1_500, 2_000].map((ms) => red.reclaimToCap(begun + ms));
  assert.deepEqual(ended, [0, 0, 0, 0, 0]);
  assert.deepEqual([stopped.held, moving.held], [MIB, 2 * MIB]);
  assert.deepEqual([red.links.pressure, red.pressure, red.held], [over, over, 3 * CAP + 3 * MIB], "but it counts");
  assert.equal(red.reserve(1), false);
});

test("a link that has stopped is ended when links and connections together hold more than limits.memory", () => {
  const { red } = capped();
  const stopped = new Held(red, 5 * MIB, 10_000);
  const link = new Held(red.links, CAP, 15_000);
  assert.equal(red.reclaimToCap(performance.now()), 1);
  assert.deepEqual([link.held, stopped.held, red.held], [0, 5 * MIB, 5 * MIB]);
});

test("connections that hold more than limits.memory are ended for their own bytes, whatever links keep", () => {
  const { red } = capped();
  red.links.hold(3 * CAP);
  const stopped = Array.from({ length: 17 }, () => new Held(red, MIB, 1_000));
  assert.equal(red.reclaimToCap(performance.now()), 3, "down to nine tenths of 16 MiB");
  assert.equal(stopped.filter(({ held }) => held > 0).length, 14);
});
