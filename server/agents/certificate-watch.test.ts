import assert from "node:assert/strict";
import { type TestContext, test } from "node:test";
import { CertificateWatch } from "./certificate-watch.ts";

const SECOND = 1_000;
const HOUR = 3_600 * SECOND;
/** Timers that fire within one step see its end as the time. */
const STEP = 500;

/** A tunnel whose certificate expires in `lastsMs`, and what becomes of it. */
function watched(t: TestContext, lastsMs: number) {
  t.mock.timers.enable({ apis: ["setTimeout"] });
  const clock = { ms: 1_700_000_000_000 };
  t.mock.method(Date, "now", () => clock.ms);
  const told: string[] = [];
  const inMs = (ms: number) => new Date(Date.now() + ms);
  const watch = new CertificateWatch(inMs(lastsMs), {
    onAsk: (reason) => told.push(`ask: ${reason}`),
    onExpired: (reason) => told.push(`end: ${reason}`),
  });
  t.after(() => watch.close());
  const asked = () => told.filter((line) => line.startsWith("ask")).length;
  const ended = () => told.filter((line) => line.startsWith("end")).length;
  const pass = (ms: number) => {
    for (let left = ms; left > 0; left -= STEP) {
      clock.ms += Math.min(left, STEP);
      t.mock.timers.tick(Math.min(left, STEP));
    }
  };
  return { watch, clock, told, inMs, asked, ended, pass };
}

test("in the last minute the agent is asked, several times; at the end, and no earlier, the tunnel ends once", (t) => {
  const { told, asked, ended, pass } = watched(t, HOUR);
  pass(HOUR - 60 * SECOND - 1);
  assert.equal(asked(), 0);
  pass(60 * SECOND);
  assert.ok(asked() >= 3 && asked() <= 6, `asked ${asked()} times`);
  assert.equal(ended(), 0);
  pass(1);
  assert.equal(told.at(-1), "end: the agent's certificate expired on 2023-11-14T23:13:20Z");
  pass(HOUR);
  assert.equal(ended(), 1);
});

test("who comes with another certificate stays until that one ends; who comes with the same one does not", (t) => {
  const { watch, inMs, asked, ended, pass } = watched(t, HOUR);
  pass(HOUR - 30 * SECOND);
  watch.renewed(inMs(HOUR));
  const before = asked();
  pass(HOUR - 61 * SECOND);
  assert.deepEqual([asked() - before, ended()], [0, 0]);
  pass(31 * SECOND);
  watch.renewed(inMs(30 * SECOND));
  pass(30 * SECOND);
  assert.equal(ended(), 1);
});

test("a proof whose certificate has expired on the way is none", (t) => {
  const { watch, inMs, ended, pass } = watched(t, HOUR);
  watch.renewed(inMs(-1));
  pass(1);
  assert.equal(ended(), 1);
});

test("an end in a hundred years does not end the tunnel now", (t) => {
  const { told, pass } = watched(t, 100 * 365 * 24 * HOUR);
  pass(HOUR);
  assert.deepEqual(told, []);
});

test("a clock that is set forward is noticed within a minute", (t) => {
  const { clock, ended, pass } = watched(t, 24 * HOUR);
  clock.ms += 25 * HOUR;
  assert.equal(ended(), 0);
  pass(60 * SECOND);
  assert.equal(ended(), 1);
});
