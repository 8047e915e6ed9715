import assert from "node:assert/strict";
import { test } from "node:test";
import { type Deferred, deferred } from "./promises.ts";
import { oncePerSecond, SharedInterval } from "./timers.ts";

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
