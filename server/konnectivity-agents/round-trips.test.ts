import assert from "node:assert/strict";
import { type TestContext, test } from "node:test";
import { RoundTrips } from "./round-trips.ts";

/** An agent that has been asked, and what is known of its connection. */
function asked(t: TestContext) {
  const pings: ((isAnswered: boolean) => void)[] = [];
  const sender = { written: 0, taken: 0, control: () => sender.written++ };
  const call = { received: 0, ping: (onOver: (isAnswered: boolean) => void) => pings.push(onOver) };
  let now = 0;
  t.mock.method(performance, "now", () => now);
  const roundTrips = new RoundTrips(sender as never, call as never);
  sender.written = 20;
  void roundTrips.measure();
  const looks = (seconds: number, each = () => {}) => {
    for (let at = 0; at < seconds * 2; at++) {
      now += 500;
      each();
      roundTrips.look();
    }
  };
  return { roundTrips, sender, call, pings, looks };
}

test("an agent that has had everything, and answers a PING but no question, stands still after 5 s until it answers", (t) => {
  const { roundTrips, sender, pings, looks } = asked(t);
  sender.taken = 21;
  looks(60);
  assert.deepEqual([roundTrips.standsStill, pings.length], [false, 1], "the line may be slow, or lost");
  pings[0]?.(true);
  looks(5);
  assert.equal(roundTrips.standsStill, false);
  looks(0.5);
  assert.equal(roundTrips.standsStill, true);
  roundTrips.onClosed(-1n);
  assert.equal(roundTrips.standsStill, false);
});

test("so does one that takes nothing more, though it was not asked", (t) => {
  const { roundTrips, sender, pings, looks } = asked(t);
  roundTrips.onClosed(-1n);
  looks(60);
  assert.equal(pings.length, 1);
  pings[0]?.(true);
  looks(5.5);
  assert.equal(roundTrips.standsStill, true);
  sender.taken++;
  looks(0.5);
  assert.equal(roundTrips.standsStill, false, "it moves again");
});

test("one whose packets drain slowly does not, nor one whose answer waits behind bytes of its other connections", (t) => {
  const { roundTrips, sender, call, pings, looks } = asked(t);
  const answerPing = () => {
    for (const onOver of pings.splice(0)) onOver(true);
  };
  for (let at = 0; at < 20; at++) {
    looks(4);
    answerPing();
    sender.taken++;
    looks(4);
  }
  assert.equal(roundTrips.standsStill, false);
  looks(20, () => {
    call.received += 10_000;
    answerPing();
  });
  assert.equal(roundTrips.standsStill, false);
  looks(60, () => {
    call.received += 10_000;
    answerPing();
  });
  assert.equal(roundTrips.standsStill, true, "after 1 MiB it cannot be the line");
});
