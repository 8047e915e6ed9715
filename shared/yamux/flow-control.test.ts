import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { type CreditBudget, ReceiveWindow } from "./flow-control.ts";
import { SendBuffer } from "./send-queue.ts";

const RUNS = process.env["CI"] === "true" ? 5_000 : 500;
interface Case extends CreditBudget {
  readonly roundTripMs: number;
}

const BUDGET = { giveBack: () => {}, mustShrink: false };
const GENEROUS: Case = { ...BUDGET, reserve: () => true, roundTripMs: 10 };
const MISERLY: Case = { ...BUDGET, reserve: () => false, roundTripMs: 10 };
const UNMEASURED: Case = { ...BUDGET, reserve: () => true, roundTripMs: 0 };

const CASES: ReadonlyArray<{
  readonly name: string;
  readonly consumed: number;
  readonly afterMs: number;
  readonly budget: Case;
  readonly credit: number;
  readonly size: number;
}> = [
  { name: "less than half a window: nothing yet", consumed: 49, afterMs: 1, budget: GENEROUS, credit: 0, size: 100 },
  { name: "half a window, slowly: as much back", consumed: 50, afterMs: 40, budget: GENEROUS, credit: 50, size: 100 },
  {
    name: "half a window within 4 round trips: doubled",
    consumed: 50,
    afterMs: 39,
    budget: GENEROUS,
    credit: 150,
    size: 200,
  },
  { name: "a whole window at once", consumed: 100, afterMs: 1, budget: GENEROUS, credit: 200, size: 200 },
  { name: "the budget says no: as much back", consumed: 50, afterMs: 1, budget: MISERLY, credit: 50, size: 100 },
  { name: "no round trip measured: as much back", consumed: 50, afterMs: 0, budget: UNMEASURED, credit: 50, size: 100 },
];

for (const { name, consumed, afterMs, budget, credit, size } of CASES) {
  test(`credit — ${name}`, () => {
    const window = new ReceiveWindow(100, 1_000, 0);
    assert.equal(window.receive(100), true);
    assert.equal(window.consume(consumed, budget, { now: () => afterMs, roundTripMs: budget.roundTripMs }), credit);
    assert.equal(window.size, size);
    assert.equal(window.reserved, size - 100);
  });
}

test("a window doubles up to its maximum and not beyond", () => {
  const window = new ReceiveWindow(100, 350, 0);
  const sizes: number[] = [];
  for (let turn = 0; turn < 4; turn++) {
    assert.equal(window.receive(window.size), true);
    window.consume(window.size, GENEROUS, { now: () => 0, roundTripMs: GENEROUS.roundTripMs });
    sizes.push(window.size);
  }
  assert.deepEqual(sizes, [200, 350, 350, 350]);
});

const MIB = 1024 * 1024;

/** The credits of a window of 8 MiB whose reader takes half a MiB every `everyMs`, until `count` have been given. */
function creditsOf(count: number, everyMs: number, budget: Case): number[] {
  const window = new ReceiveWindow(8 * MIB, 16 * MIB, 0);
  const credits: number[] = [];
  for (let now = everyMs; credits.length < count; now += everyMs) {
    window.receive(MIB / 2);
    const credit = window.consume(MIB / 2, budget, { now: () => now, roundTripMs: budget.roundTripMs });
    if (credit > 0) credits.push(credit / MIB);
  }
  return credits;
}

test("a large window gets credit by 2 MiB, and grows by the time that half of it took", () => {
  assert.deepEqual(creditsOf(2, 0.1, GENEROUS), [2, 2 + 8]);
  assert.deepEqual(creditsOf(4, 2, MISERLY), [2, 2, 2, 2]);
});

test("whatever is sent and read: never more outstanding than the window, and a reader that reads all is never stuck", () => {
  const step = fc.record({ send: fc.nat(60), read: fc.nat(60), ms: fc.nat(100), willing: fc.boolean() });
  const property = fc.property(fc.integer({ min: 1, max: 64 }), fc.array(step, { maxLength: 60 }), (size, steps) => {
    const window = new ReceiveWindow(size, 512, 0);
    let sendable = size;
    let buffered = 0;
    let now = 0;
    const read = (bytes: number, budget: Case) => {
      buffered -= bytes;
      sendable += window.consume(bytes, budget, { now: () => now, roundTripMs: budget.roundTripMs });
    };
    for (const { send, read: wanted, ms, willing } of steps) {
      now += ms;
      assert.equal(window.receive(sendable + 1), false, "beyond the window");
      const sent = Math.min(send, sendable);
      assert.equal(window.receive(sent), true);
      sendable -= sent;
      buffered += sent;
      read(Math.min(wanted, buffered), willing ? GENEROUS : MISERLY);
      assert.ok(sendable + buffered <= window.size, "outstanding credit and buffer stay within the window");
      assert.ok(window.size <= 512);
    }
    read(buffered, MISERLY);
    assert.ok(sendable * 2 >= window.size - 1, "all read: at least half a window is open");
  });
  fc.assert(property, { numRuns: RUNS });
});

test("credit beyond a uint32 is refused, up to it taken", () => {
  const buffer = new SendBuffer(1);
  assert.equal(buffer.grant(0xffff_fffe), true);
  assert.equal(buffer.grant(1), false);
});
