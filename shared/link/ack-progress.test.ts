import assert from "node:assert/strict";
import { type TestContext, test } from "node:test";
import { RECLAIM, reclaim } from "../limits/reclaim.ts";
import { AckProgress } from "./ack-progress.ts";

const MIB = 1024 * 1024;

/** A link of which the test says how far it is, and what it is looked at by. */
function watched(t: TestContext) {
  const link = {
    suspended: false,
    unacknowledged: 0,
    acknowledgedOffset: 0,
    ended: [] as string[],
    destroy({ message }: Error) {
      link.ended.push(message);
    },
    send(bytes: number) {
      link.unacknowledged += bytes;
    },
    acknowledge(bytes: number) {
      link.acknowledgedOffset += bytes;
      link.unacknowledged -= bytes;
    },
  };
  const progress = new AckProgress(link);
  t.after(() => progress.stop());
  const look = (times: number) => {
    for (let i = 0; i < times && link.ended.length === 0; i++) progress.look();
  };
  return { link, progress, look };
}

test("a link of which nothing is acknowledged for 60 s ends, and not before", (t) => {
  const { link, look } = watched(t);
  link.send(1);
  look(12);
  assert.deepEqual(link.ended, []);
  look(1);
  assert.deepEqual(link.ended, ["the other end has acknowledged nothing for 60 s of what it was sent"]);
});

test("one that acknowledges next to nothing is among the first to be given up where memory is wanted", (t) => {
  const { link, progress, look } = watched(t);
  link.send(1_000_000);
  for (let round = 0; round < 20; round++) {
    look(1);
    link.acknowledge(1);
  }
  assert.deepEqual(link.ended, []);
  const small = {
    held: 999_000,
    lastProgressAt: performance.now() - 30_000,
    longestPauseMs: 0,
    evict: () => assert.fail(),
  };
  const isEnough = () => link.ended.length > 0;
  assert.equal(reclaim([small, progress], isEnough, performance.now(), RECLAIM.longStalled), 1);
});

test("one whose slow line takes minutes for all that it was sent goes on, also where memory is short", (t) => {
  const { link, progress, look } = watched(t);
  link.send(16 * MIB);
  while (link.unacknowledged > MIB) {
    look(1);
    link.acknowledge(5 * 64 * 1024);
    const ended = reclaim([progress], () => false, performance.now(), RECLAIM.stalled);
    assert.deepEqual([link.ended, ended], [[], 0], `${link.unacknowledged} bytes are left`);
  }
});

test("one that is slow and acknowledges each byte within 55 s goes on for ever", (t) => {
  const { link, look } = watched(t);
  for (let round = 0; round < 100; round++) {
    link.send(1_000);
    look(11);
    link.acknowledge(1_000);
  }
  look(100);
  assert.deepEqual(link.ended, []);
});

test("time without a carrier does not count, and what was counted before is not forgotten", (t) => {
  const { link, look } = watched(t);
  link.send(1);
  look(10);
  link.suspended = true;
  look(100);
  link.suspended = false;
  look(2);
  assert.deepEqual(link.ended, []);
  look(1);
  assert.equal(link.ended.length, 1);
});

test("where memory is short a link can be given up after 10 s, with all that it holds", (t) => {
  const { link, progress, look } = watched(t);
  link.send(4_096);
  look(2);
  assert.equal(progress.held, 0);
  look(1);
  assert.equal(progress.held, 4_096);
  assert.ok(performance.now() - progress.lastProgressAt > 14_900);
  progress.evict();
  assert.deepEqual(link.ended, ["memory is short, and the other end does not acknowledge what it is sent"]);
});
