import assert from "node:assert/strict";
import { type TestContext, test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { until } from "../basics/testing/wait.ts";
import { TlsOverhead, wastedBytes } from "./tls-overhead.ts";

for (const [what, raw, payload, wasted] of [
  ["whole records waste nothing", 16_406, 16_384, 0],
  ["a key press in a record of its own wastes nothing", 23, 1, 0],
  ["records without payload are wasted", 27_000, 0, 27_000],
  ["padding is wasted but for a record's worth", 16_406, 1, 16_278],
] as const) {
  test(what, () => assert.equal(wastedBytes(raw, payload), wasted));
}

/** A socket that only counts. */
const counting = () => ({ bytesRead: 0 });

/** Watches connections until the test is over. */
function overheadIn(t: TestContext): TlsOverhead {
  const overhead = new TlsOverhead();
  const running = setInterval(() => {}, 1_000); // the timer of the checks keeps no process alive
  t.after(() => {
    overhead.stop();
    clearInterval(running);
  });
  return overhead;
}

test("a connection that wastes more than its budget is reported once, others are not", async (t) => {
  const overhead = overheadIn(t);
  const [honest, flooding] = [counting(), counting()];
  const payload = counting();
  let floods = 0;
  overhead.watch(flooding, counting(), () => floods++);
  overhead.watch(honest, payload, () => assert.fail("an honest connection was reported"));
  [honest.bytesRead, payload.bytesRead] = [10_000_000, 9_000_000];
  flooding.bytesRead = 200_000;
  await until(() => floods > 0);
  flooding.bytesRead = 400_000;
  assert.equal(floods, 1);
});

test("records that arrive over many checks, on a line of whatever rate, are no flood", async (t) => {
  const overhead = overheadIn(t);
  const looks = 20;
  const lines = [20_000, 60_000, 125_000, 300_000, 10_000_000].map((rate) => {
    const line = { raw: counting(), payload: counting(), rate };
    overhead.watch(line.raw, line.payload, () => assert.fail(`${rate} B/s were taken for a flood`));
    return line;
  });
  for (let look = 0; look < looks; look++) {
    for (const { raw, payload, rate } of lines) {
      raw.bytesRead += rate / 20;
      payload.bytesRead = Math.floor(raw.bytesRead / 16_406) * 16_384; // that of whole records
    }
    await sleep(50); // the interval of the checks
  }
});

test("a connection that is watched no more is not reported", async (t) => {
  const overhead = overheadIn(t);
  const [gone, flooding] = [counting(), counting()];
  overhead.watch(gone, counting(), () => assert.fail("it had gone"))();
  const ended = new Promise<void>((resolve) => overhead.watch(flooding, counting(), resolve));
  gone.bytesRead = 200_000;
  flooding.bytesRead = 200_000;
  await ended;
});

test("a flood among thousands of connections is found, one part of them after the other", async (t) => {
  const overhead = overheadIn(t);
  for (let count = 0; count < 1_000; count++) overhead.watch(counting(), counting(), () => assert.fail("honest"));
  const flooding = counting();
  const ended = new Promise<void>((resolve) => overhead.watch(flooding, counting(), resolve));
  flooding.bytesRead = 200_000;
  await ended;
});
