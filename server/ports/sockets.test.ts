import assert from "node:assert/strict";
import { once } from "node:events";
import { Duplex } from "node:stream";
import { test } from "node:test";
import { setImmediate as turn } from "node:timers/promises";
import { Sockets, type SocketsOptions } from "./sockets.ts";

function socket(): Duplex {
  return new Duplex({ read: () => {}, write: (_chunk, _encoding, done) => done() });
}

function sockets(more: Partial<SocketsOptions> = {}): Sockets {
  return new Sockets({ deadlineMs: 60_000, maxWaiting: 3, onLate: () => {}, onDropped: () => {}, ...more });
}

test("never more wait than may: one too many drops the oldest, and nobody who has spoken", async () => {
  let dropped = 0;
  const all = sockets({ onDropped: () => dropped++ });
  const [spoken, ...silent] = Array.from({ length: 10 }, socket);
  assert.ok(spoken);
  all.add(spoken);
  assert.equal(all.stopWaiting(spoken), true);
  for (const one of silent) {
    all.add(one);
    assert.ok(all.waiting <= 3, `${all.waiting} wait`);
  }
  await turn();
  assert.equal(dropped, 6);
  assert.deepEqual(
    silent.map((one) => one.destroyed),
    [...Array(6).fill(true), ...Array(3).fill(false)],
  );
  assert.equal(spoken.destroyed, false);
  assert.equal(all.size, 4);
  for (const one of [spoken, ...silent]) one.destroy();
});

test("who closes makes room, and who is dropped is not late", async () => {
  const late: Duplex[] = [];
  let onFirst: () => void = () => {};
  const someLate = new Promise<void>((resolve) => {
    onFirst = resolve;
  });
  const onLate = (one: Duplex) => {
    late.push(one);
    onFirst();
  };
  const all = sockets({ maxWaiting: 1, deadlineMs: 1, onLate });
  const [first, second, third] = [socket(), socket(), socket()];
  all.add(first);
  first.destroy();
  await turn();
  all.add(second);
  all.add(third);
  assert.deepEqual([second.destroyed, third.destroyed], [true, false]);
  await someLate;
  assert.deepEqual(late, [third]);
  third.destroy();
  await all.empty(60_000);
});

test("who is set aside takes no room and is never dropped for a newer one, and keeps its deadline", async () => {
  const late: Duplex[] = [];
  const all = sockets({ maxWaiting: 1, deadlineMs: 20, onLate: (one) => void late.push(one.destroy()) });
  const [judged, first, second] = [socket(), socket(), socket()];
  all.add(judged);
  all.setAside(judged);
  all.add(first);
  all.add(second);
  assert.deepEqual([judged.destroyed, first.destroyed, second.destroyed], [false, true, false]);
  assert.equal(all.waiting, 1);
  assert.equal(all.stopWaiting(second), true);
  await once(judged, "close");
  assert.deepEqual(late, [judged]);
  second.destroy();
  await all.empty(60_000);
});

test("who is set aside has still asked for nothing when nobody new is let in", () => {
  const all = sockets();
  const judged = socket();
  all.add(judged);
  all.setAside(judged);
  all.destroyWaiting();
  assert.equal(judged.destroyed, true);
});

test("who goes before it has said what it wants is told of; who has said it, or is sent away, is not", async () => {
  const left: string[] = [];
  const all = sockets({});
  const enter = (name: string) => {
    const one = socket();
    all.add(one, () => left.push(name));
    return one;
  };
  const spoken = enter("spoken");
  all.stopWaiting(spoken);
  spoken.destroy();
  all.dismiss(enter("dismissed"));
  enter("went").destroy();
  await turn();
  enter("waiting at the end");
  all.destroyWaiting();
  enter("reset");
  all.resetAll();
  await all.empty(60_000);
  assert.deepEqual(left, ["went"]);
});
