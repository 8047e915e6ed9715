import assert from "node:assert/strict";
import { test } from "node:test";
import { onceASecond } from "./once-a-second.ts";

test("a value is made once a second, however often it is asked for", (t) => {
  t.mock.timers.enable({ apis: ["setTimeout"] });
  let made = 0;
  const value = onceASecond(() => ++made);
  assert.deepEqual([value(), value()], [1, 1]);
  t.mock.timers.tick(999);
  assert.equal(value(), 1);
  t.mock.timers.tick(1);
  assert.deepEqual([value(), value()], [2, 2]);
});

test("a promise is the same one until it settles and for a second more, also one that fails", async (t) => {
  t.mock.timers.enable({ apis: ["setTimeout"] });
  const promises: PromiseWithReject[] = [];
  const value = onceASecond(() => {
    const made = withReject();
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

interface PromiseWithReject {
  readonly promise: Promise<never>;
  readonly reject: (error: Error) => void;
}

function withReject(): PromiseWithReject {
  let reject: (error: Error) => void = () => {};
  const promise = new Promise<never>((_resolve, fail) => {
    reject = fail;
  });
  return { promise, reject };
}
