import assert from "node:assert/strict";
import { test } from "node:test";
import { type LatencyWindow, latencyRatio } from "./latency-ratio.ts";
import { Random } from "./random.ts";

const WINDOWS = 16;
const EACH = 100;

/** Latencies of a busy machine, ms: one in a hundred is above 12, one in a thousand above 75. */
function busyMachine(random: Random, harm: (ms: number, window: number, index: number) => number): LatencyWindow[] {
  const ms = () => 0.3 / (1e-4 + random.next()) ** 0.8;
  return Array.from({ length: WINDOWS }, (_, window) => ({
    attacked: Array.from({ length: EACH }, (_, index) => harm(ms(), window, index)),
    calm: Array.from({ length: EACH }, ms),
  }));
}

const SERVERS: Readonly<Record<string, { harm: (ms: number, window: number, index: number) => number; red: boolean }>> =
  {
    "does as well as the other": { harm: (ms) => ms, red: false },
    "is half as slow again": { harm: (ms) => 1.5 * ms, red: false },
    "stands still once in the whole time": {
      harm: (ms, window, index) => (window === 3 && index < 5 ? 500 : ms),
      red: false,
    },
    "takes eight times as long": { harm: (ms) => 8 * ms, red: true },
    "stands still twice in each window": { harm: (ms, _window, index) => (index < 2 ? 250 : ms), red: true },
  };

for (const [what, { harm, red }] of Object.entries(SERVERS)) {
  test(`on a busy machine a server that ${what} is ${red ? "" : "not "}found to be more than twice as slow`, () => {
    for (let seed = 1; seed <= 4; seed++) {
      const { atLeast, ratio } = latencyRatio(busyMachine(new Random(seed), harm));
      assert.equal(atLeast > 2, red, `seed ${seed}: ${ratio.toFixed(2)}, at least ${atLeast.toFixed(2)}`);
    }
  });
}

test("the percentile has ten samples above it", () => {
  const windows = [{ attacked: Array.from({ length: 100 }, (_, index) => index), calm: Array(200).fill(1) }];
  assert.equal(latencyRatio(windows).percentile, 90);
});
