import assert from "node:assert/strict";
import { test } from "node:test";
import { LookTimer } from "./look-timer.ts";

test("a look is called in each period until it is taken away, also by one that is called before it", (t) => {
  t.mock.timers.enable({ apis: ["setInterval"] });
  const timer = LookTimer.every(1_000);
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
