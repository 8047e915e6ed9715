import assert from "node:assert/strict";
import { test } from "node:test";
import { setImmediate as turn } from "node:timers/promises";
import { type Deferred, deferred } from "./promises.ts";
import { oncePerSecond, SharedInterval, TurnQueue } from "./timers.ts";

test("a callback is called in each period until it is removed, also by one that is called before it", (t) => {
  t.mock.timers.enable({ apis: ["setInterval"] });
  const timer = SharedInterval.every(1_000);
  const looks: string[] = [];
  const own = timer.add(() => {
    looks.push("own");
    other.leave();
  });
  const other = timer.add(() => looks.push("other"));
  const third = timer.add(() => looks.push("third"));
  t.mock.timers.tick(1_000);
  assert.deepEqual(looks.splice(0), ["own", "third"]);
  own.leave();
  t.mock.timers.tick(1_000);
  assert.deepEqual(looks.splice(0), ["third"]);
  third.leave();
  t.mock.timers.tick(5_000);
  assert.deepEqual(looks, []);
});

test("a value is made once a second, however often it is asked for", (t) => {
  t.mock.timers.enable({ apis: ["setTimeout"] });
  let made = 0;
  const value = oncePerSecond(() => ++made);
  assert.deepEqual([value(), value()], [1, 1]);
  t.mock.timers.tick(999);
  assert.equal(value(), 1);
  t.mock.timers.tick(1);
  assert.deepEqual([value(), value()], [2, 2]);
});

test("a promise is the same one until it settles and for a second more, also one that fails", async (t) => {
  t.mock.timers.enable({ apis: ["setTimeout"] });
  const promises: Deferred<never>[] = [];
  const value = oncePerSecond(() => {
    const made = deferred<never>();
    promises.push(made);
    return made.promise;
  });
  const first = value();
  t.mock.timers.tick(10_000);
  assert.equal(value(), first);
  promises[0]?.reject(new Error("cannot be made"));
  await assert.rejects(first);
  assert.equal(value(), first);
  t.mock.timers.tick(1_000);
  assert.notEqual(value(), first);
  assert.equal(promises.length, 2);
});

const MOST = 8;

/** A queue whose turns take as long as `clock` is moved on in them, and which jobs have run. */
function queueWithClock() {
  const clock = { ms: 0 };
  const ran: number[] = [];
  const queue = new TurnQueue(() => clock.ms);
  const runAll = (count: number, tookMs = 0) => {
    for (let job = 0; job < count; job++) {
      queue.run(() => {
        ran.push(job);
        clock.ms += tookMs;
      });
    }
  };
  return { queue, ran, runAll };
}

test("a job that comes alone runs at once", () => {
  const { ran, runAll } = queueWithClock();
  runAll(1);
  assert.deepEqual(ran, [0]);
});

test("jobs that come together run in order, a few in a turn", async () => {
  const { ran, runAll } = queueWithClock();
  runAll(3 * MOST);
  for (const count of [MOST, 2 * MOST, 3 * MOST]) {
    assert.deepEqual(
      ran,
      Array.from({ length: count }, (_, index) => index),
    );
    await turn();
  }
});

test("a job that comes while others wait runs behind them", async () => {
  const { queue, ran, runAll } = queueWithClock();
  runAll(MOST + 2);
  queue.run(() => ran.push(-1));
  await turn();
  assert.deepEqual(ran.slice(MOST), [MOST, MOST + 1, -1]);
});

test("a job added by one that had to wait runs behind those that still wait", async () => {
  const { queue, ran, runAll } = queueWithClock();
  runAll(MOST);
  queue.run(() => queue.run(() => ran.push(-2)));
  queue.run(() => ran.push(-1));
  await turn();
  assert.deepEqual(ran.slice(MOST), [-1, -2]);
});

test("long turns take half as many jobs each, down to one; short ones one more each, up to eight", async () => {
  const { ran, runAll } = queueWithClock();
  const counts: number[] = [];
  const countTurns = async (turns: number) => {
    for (let i = 0, before = ran.length; i < turns; i++, before = ran.length) {
      await turn();
      counts.push(ran.length - before);
    }
  };
  runAll(100, 11);
  await countTurns(5);
  assert.deepEqual(counts.splice(0), [4, 2, 1, 1, 1]);
  while (ran.length < 100) await turn();
  runAll(100);
  await turn();
  await countTurns(9);
  assert.deepEqual(counts.slice(-2), [MOST, MOST]);
  assert.ok(counts.every((count, i) => i === 0 || count === Math.min(MOST, (counts[i - 1] ?? 0) + 1)));
});
