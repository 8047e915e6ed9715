import assert from "node:assert/strict";
import { type TestContext, test } from "node:test";
import { until } from "../../shared/basics/testing/wait.ts";
import { ALREADY_CONNECTED, CloseCode, LinkRefused } from "../../shared/wire/handshake.ts";
import { addressKey, type FoundAddress } from "../context/servers.ts";
import { contextOf } from "../testing/context.ts";
import type { Connection } from "./connection.ts";
import type { Endpoints } from "./endpoints.ts";
import { Slot, type SlotOwner, searchWaitMs } from "./slot.ts";
import { maxUplinks } from "./uplink-set.ts";

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
  assert.deepEqual([maxUplinks("all", 1), maxUplinks("all", 6), maxUplinks("2", 6), maxUplinks("9", 1)], [4, 6, 2, 9]);
});

/** A slot of a set that says this of it, and how its dials end. */
function slotOf(t: TestContext, set: Partial<SlotOwner>, dial: SlotOwner["dial"]): Slot {
  const all: SlotOwner = {
    dial,
    servers: undefined,
    isSurplus: () => false,
    hasOther: () => false,
    heldByOthers: () => new Set<string>(),
    onState: () => {},
    onFailed: () => {},
    onKnown: () => {},
    ...set,
  };
  const endpoints: Partial<Endpoints> = {
    name: "wss://s",
    needsRecords: false,
    choose: () => undefined,
    ledToKnown: () => {},
    reached: () => {},
    failed: () => {},
  };
  const context = contextOf({ retry: { baseMs: 100, capMs: 100, random: () => 1 } });
  const slot = new Slot(endpoints as Endpoints, all, context);
  t.after(() => slot.uplink.destroy(new Error("the test is over")));
  return slot;
}

test("a slot for which there is no server waits, and dials as soon as there is one", async (t) => {
  let isSurplus = true;
  let dials = 0;
  const slot = slotOf(t, { isSurplus: () => isSurplus }, () => {
    dials++;
    return new Promise(() => {});
  });
  slot.uplink.start();
  slot.unpark();
  await new Promise(setImmediate);
  assert.equal(dials, 0, "there is still none");
  isSurplus = false;
  slot.unpark();
  await until(() => dials === 1);
});

const KNOWN = new LinkRefused({
  closeCode: CloseCode.alreadyConnected,
  reason: `${ALREADY_CONNECTED}: this agent has a tunnel here`,
});

test("a slot that finds no server but those of others has no failure, whatever its attempt before has met", async (t) => {
  for (const isSurplus of [false, true]) {
    const dials: ((error: Error) => void)[] = [];
    let hasFailed = false;
    const set = { isSurplus: () => isSurplus && hasFailed, hasOther: () => true };
    const slot = slotOf(t, set, () => new Promise((_, reject) => dials.push(reject)));
    slot.uplink.start();
    await until(() => dials.length === 1);
    hasFailed = true;
    dials[0]?.(new Error("nobody listens"));
    await until(() => slot.uplink.failure === "nobody listens");
    if (!isSurplus) {
      await until(() => dials.length === 2);
      dials[1]?.(KNOWN);
    }
    await until(() => slot.uplink.failure === undefined);
    assert.equal(slot.uplink.state.state, "connecting");
  }
});

test("an uplink at a host of a higher SRV priority moves to a lower one as soon as it is reached, and keeps the old one until then", async (t) => {
  const [backup, silent, back] = ["c", "a", "b"].map((host) => ({ host, port: 1 }));
  const reached = new Set(["c:1"]);
  const dialled: string[] = [];
  const ended: string[] = [];
  const connection = (address: FoundAddress | undefined) => ({
    welcome: { serverId: address?.host },
    link: { id: "link", remote: "r" },
    leave: () => ended.push(String(address?.host)),
    session: { closed: false, draining: false, streamCount: 0, destroy: () => {}, drain: () => {} },
  });
  const slot = slotOf(t, {}, async ({ address }) => {
    dialled.push(String(address?.host));
    if (address === undefined || !reached.has(addressKey(address))) throw new Error("nobody listens");
    return connection(address) as unknown as Connection;
  });
  Object.assign(slot.endpoints, { choose: () => backup, before: () => [silent, back] });
  slot.uplink.start();
  await until(() => slot.uplink.connected);
  await slot.lookLower();
  assert.deepEqual([dialled, ended, slot.place], [["c", "a", "b"], [], "c:1"]);
  assert.ok(slot.uplink.connected);
  reached.add("b:1");
  await slot.lookLower();
  assert.deepEqual([dialled.slice(3), ended, slot.place], [["a", "b"], ["c"], "b:1"]);
  assert.ok(slot.uplink.connected);
});
