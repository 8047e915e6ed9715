import assert from "node:assert/strict";
import { mock, type TestContext, test } from "node:test";
import { Liveness } from "./liveness.ts";

interface Timer {
  at: number;
  readonly everyMs: number | undefined;
  readonly run: () => void;
  unref(): Timer;
}

/** Clock and timers that the test turns. (node:test's own keep an interval that is cleared inside its callback.) */
class Clock {
  now = 5_000;
  readonly timers = new Set<Timer>();

  constructor(t: TestContext) {
    t.mock.method(performance, "now", () => this.now);
    const add = (run: () => void, ms: number, everyMs?: number): Timer => {
      const timer: Timer = { at: this.now + ms, everyMs, run, unref: () => timer };
      this.timers.add(timer);
      return timer;
    };
    const clear = (timer: Timer): boolean => this.timers.delete(timer);
    t.mock.method(globalThis, "setTimeout", (run: () => void, ms: number) => add(run, ms));
    t.mock.method(globalThis, "setInterval", (run: () => void, ms: number) => add(run, ms, ms));
    t.mock.method(globalThis, "clearTimeout", clear);
    t.mock.method(globalThis, "clearInterval", clear);
  }

  pass(ms: number): void {
    const until = this.now + ms;
    while (this.now < until) {
      this.now += 5;
      this.#runDue();
    }
  }

  #runDue(): void {
    for (const timer of [...this.timers]) {
      if (timer.at > this.now || !this.timers.has(timer)) continue;
      if (timer.everyMs === undefined) this.timers.delete(timer);
      else timer.at = this.now + timer.everyMs;
      timer.run();
    }
  }
}

/** A liveness of 1,000 ms. */
function start(t: TestContext) {
  const clock = new Clock(t);
  const said: string[] = [];
  const ping = mock.fn();
  const read: { one: number | undefined; other: number | undefined } = { one: undefined, other: undefined };
  const progress = [() => read.one, () => read.other];
  let byteAt = clock.now;
  const dead = (sentence: string) => said.push(sentence);
  const liveness = new Liveness(1_000, { lastByteAt: () => byteAt, ping, dead, progress });
  return {
    read,
    clock,
    liveness,
    /** A byte of the peer arrives. */
    receive: () => {
      byteAt = clock.now;
    },
    said,
    pings: () => ping.mock.callCount(),
    pass: (ms: number) => clock.pass(ms),
    /** Time goes by and no timer runs: the process is stopped. */
    stop: (ms: number) => {
      clock.now += ms;
    },
  };
}

test("silence of 2.5 intervals loses the carrier, once, and stops everything", (t) => {
  const { said, pings, pass } = start(t);
  pass(2_450);
  assert.deepEqual(said, []);
  pass(200);
  assert.deepEqual(said, ["nothing was received for 2.5 s"]);
  const before = pings();
  pass(10_000);
  assert.deepEqual([said.length, pings()], [1, before]);
});

test("any byte starts the count again", (t) => {
  const { receive, said, pass } = start(t);
  for (let round = 0; round < 10; round++) {
    pass(2_000);
    receive();
  }
  assert.deepEqual(said, []);
  pass(2_800);
  assert.equal(said.length, 1);
});

test("pings come between 0.8 and 1.2 intervals", (t) => {
  const { receive, pings, pass } = start(t);
  const gaps: number[] = [];
  for (let last = 0, at = 0; gaps.length < 40; at += 5) {
    pass(5);
    receive();
    if (pings() === gaps.length + 1) {
      gaps.push(at - last);
      last = at;
    }
  }
  assert.ok(Math.min(...gaps) >= 795 && Math.max(...gaps) <= 1_210, gaps.join());
  assert.ok(Math.max(...gaps) - Math.min(...gaps) > 50, "they are spread");
});

test("a process that was itself stopped does not take its own silence for the peer's", (t) => {
  const { receive, said, pass, stop } = start(t);
  pass(1_200);
  stop(60_000);
  pass(5);
  assert.deepEqual(said, [], "what waits in the kernel is read first");
  pass(1_000);
  receive();
  pass(2_000);
  assert.deepEqual(said, []);
  stop(60_000);
  pass(3_000);
  assert.equal(said.length, 1, "but a peer that stays silent afterwards is dead");
});

test("a probe asks at once, and without a byte in its time the peer is dead", (t) => {
  const { liveness, receive, said, pings, pass } = start(t);
  pass(100);
  liveness.probe(300);
  liveness.probe(300);
  assert.equal(pings(), 1, "one question at a time");
  pass(200);
  receive();
  pass(600);
  assert.deepEqual(said, []);
  liveness.probe(300);
  pass(310);
  assert.equal(said.length, 1);
  liveness.probe(300);
  pass(1_000);
  assert.equal(said.length, 1);
});

test("a probe of a process that was itself stopped is asked again", (t) => {
  const { liveness, receive, said, pass, stop } = start(t);
  liveness.probe(300);
  stop(60_000);
  pass(5);
  assert.deepEqual(said, []);
  receive();
  pass(300);
  assert.deepEqual(said, []);
});

test("a new interval replaces the old one", (t) => {
  const { liveness, said, pings, pass } = start(t);
  liveness.setInterval(200);
  pass(450);
  assert.ok(pings() >= 1);
  pass(150);
  assert.deepEqual(said, ["nothing was received for 0.5 s"]);
});

test("stop leaves no timer behind", (t) => {
  const { clock, liveness, said, pings, pass } = start(t);
  assert.equal(clock.timers.size, 2);
  liveness.stop();
  assert.equal(clock.timers.size, 0);
  pass(10_000);
  assert.deepEqual([said, pings()], [[], 0]);
});

test("the time until a pong counts from the oldest unanswered ping", (t) => {
  const clock = new Clock(t);
  const echoes: number[] = [];
  let pings = 0;
  const ping = () => pings++;
  const liveness = new Liveness(1_000, {
    lastByteAt: () => clock.now,
    ping,
    dead: () => {},
    echo: (ms) => echoes.push(ms),
  });
  liveness.answered();
  assert.deepEqual(echoes, [], "nothing was asked");
  while (pings === 0) clock.pass(5);
  clock.pass(100);
  liveness.answered();
  liveness.answered();
  assert.deepEqual(echoes, [100]);
  while (pings < 3) {
    clock.pass(5);
  }
  liveness.answered();
  assert.ok((echoes[1] ?? 0) >= 800, `${echoes[1]}`);
  liveness.stop();
});

test("a peer that sends and reads nothing for ten seconds is lost, and one that reads now and then is not", (t) => {
  const { receive, said, read, pass } = start(t);
  const speak = (ms: number): void => {
    for (let left = ms; left > 0; left -= 250) {
      pass(250);
      receive();
    }
  };
  speak(20_000);
  assert.deepEqual(said, [], "nothing waits");
  read.one = 0;
  for (let round = 0; round < 5; round++) {
    speak(9_000);
    read.one++;
  }
  assert.deepEqual(said, [], "it is slow");
  read.other = 7;
  for (let round = 0; round < 6; round++) {
    speak(2_000);
    read.one++;
  }
  assert.deepEqual(said, ["the peer speaks, and has read nothing for 10 s"], "by one measure");
});

test("a peer that reads nothing of what waits is asked at the second look, once until it reads on", (t) => {
  const { receive, read, pings, pass } = start(t);
  receive();
  read.one = 0;
  pass(130);
  assert.equal(pings(), 0, "it may be about to read");
  pass(130);
  assert.equal(pings(), 1);
  pass(130);
  read.one++;
  pass(130);
  assert.equal(pings(), 1, "it has read");
  pass(130);
  assert.equal(pings(), 2);
});

test("a process that was itself stopped does not count that time against a slow reader", (t) => {
  const { receive, said, read, pass, stop } = start(t);
  read.one = 0;
  pass(500);
  receive();
  stop(60_000);
  receive();
  pass(1_500);
  assert.deepEqual(said, []);
});
