import assert from "node:assert/strict";
import { test } from "node:test";
import { ApiServerMonitor } from "./token-review.ts";

// Alone in its file: all monitors of a process share one timer, which is mocked here.
const SECOND = 1_000;

test("an API server is asked each minute while nobody else asks it, every 10 s while it fails, and not any more when closed", (t) => {
  let now = 0;
  t.mock.method(performance, "now", () => now);
  t.mock.timers.enable({ apis: ["setInterval"] });
  let asked = 0;
  const monitor = new ApiServerMonitor(
    () => {
      asked++;
    },
    () => {},
  );
  /** How often it is asked in this number of seconds. */
  const askedIn = (seconds: number): number => {
    const before = asked;
    for (let passed = 0; passed < seconds; passed += 10) {
      now += 10 * SECOND;
      t.mock.timers.tick(10 * SECOND);
    }
    return asked - before;
  };
  assert.equal(asked, 1, "at the start");
  monitor.answered();
  assert.equal(askedIn(50), 0);
  monitor.answered(); // by an agent's token
  assert.equal(askedIn(50), 0);
  assert.equal(askedIn(10), 1);
  monitor.failed("down");
  assert.equal(askedIn(30), 3);
  monitor.answered();
  assert.equal(askedIn(50), 0);
  monitor.close();
  assert.equal(askedIn(200), 0);
});
