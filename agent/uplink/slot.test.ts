import assert from "node:assert/strict";
import { test } from "node:test";
import { pino } from "pino";
import { until } from "../../shared/basics/testing/wait.ts";
import type { Endpoints } from "./endpoints.ts";
import { Slot, type SlotDeps, searchWaitMs } from "./slot.ts";
import { mostUplinks, type UplinkSet } from "./uplink-set.ts";

const LONGEST = { baseMs: 250, capMs: 30_000, random: () => 1 };

test("an agent looks for another server soon at first, then for as long again as a quarter of the time, and within bounds", () => {
  for (const [answers, lookingMs, servers, waitMs] of [
    [1, 0, 2, 250],
    [2, 100, 2, 250],
    [3, 200, 2, 500],
    [4, 300, 3, 250],
    [5, 300, 3, 500],
    [9, 4_000, 3, 1_000],
    [20, 20_000, 3, 5_000],
    [99, 3_600_000, 3, 10_000],
    // A server that says there is no other: nothing is looked for, but what is under way waits, too.
    [1, 0, 1, 500],
  ] as const) {
    assert.equal(searchWaitMs(answers, lookingMs, servers, LONGEST), waitMs, `${answers} ${lookingMs} ${servers}`);
  }
});

test("looks for another server have full jitter, and --sync-interval-cap bounds them", () => {
  assert.equal(searchWaitMs(50, 60_000, 3, { ...LONGEST, random: () => 0 }), 0);
  assert.equal(searchWaitMs(50, 60_000, 3, { ...LONGEST, random: () => 0.5 }), 5_000);
  assert.equal(searchWaitMs(50, 60_000, 3, { ...LONGEST, capMs: 400 }), 400);
});

test("an agent keeps as many uplinks as --uplinks says; all is every URL, and four of what it finds", () => {
  assert.deepEqual(
    [mostUplinks("all", 1), mostUplinks("all", 6), mostUplinks("2", 6), mostUplinks("9", 1)],
    [4, 6, 2, 9],
  );
});

test("a slot for which there is no server waits, and dials as soon as there is one", async (t) => {
  let isSurplus = true;
  let dials = 0;
  const set: Partial<UplinkSet> = {
    ...{ isSurplus: () => isSurplus, hasOther: () => false, heldByOthers: () => new Set<string>() },
    ...{ onState: () => {}, onFailed: () => {} },
  };
  const endpoints: Partial<Endpoints> = { name: "wss://s", needsRecords: false, choose: () => undefined };
  const deps: Partial<SlotDeps> = {
    options: { keepaliveMs: 20_000, maxCarrierAgeMs: 0, drainTimeoutMs: 0 },
    retry: { baseMs: 10, capMs: 20 },
    dial: () => {
      dials++;
      return new Promise(() => {});
    },
    log: pino({ level: "silent" }),
  };
  const slot = new Slot(endpoints as Endpoints, set as UplinkSet, deps as SlotDeps);
  t.after(() => slot.uplink.destroy(new Error("the test is over")));
  slot.uplink.start();
  slot.unpark();
  await new Promise(setImmediate);
  assert.equal(dials, 0, "there is still none");
  isSurplus = false;
  slot.unpark();
  await until(() => dials === 1);
});
