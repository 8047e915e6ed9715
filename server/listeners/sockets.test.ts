import assert from "node:assert/strict";
import { once } from "node:events";
import { Duplex } from "node:stream";
import { test } from "node:test";
import { setImmediate as turn } from "node:timers/promises";
import { Sockets, type SocketsOptions } from "./sockets.ts";
import { WaitingConnections } from "./waiting-connections.ts";

function socket(): Duplex {
  return new Duplex({ read: () => {}, write: (_chunk, _encoding, done) => done() });
}

function sockets(more: Partial<SocketsOptions> = {}): Sockets {
  return new Sockets({
    deadlineMs: 60_000,
    maxWaiting: 3,
    all: new WaitingConnections(100),
    onLate: () => {},
    onDropped: () => {},
    ...more,
  });
}

test("never more wait than may: one too many drops the oldest, and nobody who has spoken", async () => {
  let dropped = 0;
  const all = sockets({ onDropped: () => dropped++ });
  const [spoken, ...silent] = Array.from({ length: 10 }, socket);
  assert.ok(spoken);
  all.add(spoken, "one");
  assert.equal(all.stopWaiting(spoken), true);
  for (const one of silent) {
    all.add(one, "one");
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
  all.add(first, "one");
  first.destroy();
  await turn();
  all.add(second, "one");
  all.add(third, "one");
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
  all.add(judged, "one");
  all.setAside(judged);
  all.add(first, "one");
  all.add(second, "one");
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
  all.add(judged, "one");
  all.setAside(judged);
  all.destroyWaiting();
  assert.equal(judged.destroyed, true);
});

test("who goes before it has said what it wants is told of; who has said it, or is sent away, is not", async () => {
  const left: string[] = [];
  const all = sockets({});
  const enter = (name: string) => {
    const one = socket();
    all.add(one, "one", () => left.push(name));
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

test("all ports together have a bound, and the network that has most loses its oldest, whatever port that came to", async () => {
  const together = new WaitingConnections(1);
  const [callers, agents] = [sockets({ all: together, maxWaiting: 100 }), sockets({ all: together, maxWaiting: 100 })];
  const honest = socket();
  callers.add(honest, "honest");
  const flood = Array.from({ length: 10 }, socket);
  for (const [index, one] of flood.entries()) (index % 2 === 0 ? callers : agents).add(one, "flood");
  await turn();
  assert.equal(together.size, 4);
  assert.deepEqual([honest.destroyed, callers.waiting + agents.waiting], [false, 4]);
  assert.deepEqual(
    flood.map((one) => one.destroyed),
    [...Array(7).fill(true), ...Array(3).fill(false)],
  );
  callers.resetAll();
  agents.resetAll();
});
