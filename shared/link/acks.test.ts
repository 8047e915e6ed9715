import assert from "node:assert/strict";
import { mock, test } from "node:test";
import { Acks } from "./acks.ts";

const KIB = 1024;

/** Acks on a clock of the test's own. */
class Clocked implements Disposable {
  readonly sent: number[] = [];
  readonly acks = new Acks(
    (received) => this.sent.push(received),
    () => this.#nowMs,
  );
  #nowMs = 1_000;

  constructor() {
    mock.timers.enable({ apis: ["setTimeout"] });
  }

  /** The acks that are sent while this time passes. */
  passes(ms: number): number[] {
    this.sent.length = 0;
    for (let passed = 0; passed < ms; passed++) {
      this.#nowMs++;
      mock.timers.tick(1);
    }
    return [...this.sent];
  }

  [Symbol.dispose](): void {
    this.acks.stop();
    mock.timers.reset();
  }
}

test("the first 64 KiB are acknowledged at once, the next after 5 ms", () => {
  using clocked = new Clocked();
  clocked.acks.arrived(64 * KIB);
  assert.deepEqual(clocked.sent, [64 * KIB]);
  clocked.acks.arrived(200 * KIB);
  assert.deepEqual(clocked.passes(4), []);
  assert.deepEqual(clocked.passes(1), [264 * KIB]);
});

test("from 5 ms after the last one an ack of any bytes goes with what is written", () => {
  using clocked = new Clocked();
  clocked.acks.arrived(64 * KIB);
  clocked.sent.length = 0;
  clocked.acks.arrived(1);
  clocked.acks.beforeWrite();
  clocked.passes(4);
  clocked.acks.beforeWrite();
  assert.deepEqual(clocked.sent, [], "the last one is too young");
  clocked.passes(1);
  clocked.acks.beforeWrite();
  clocked.acks.beforeWrite();
  assert.deepEqual(clocked.sent, [64 * KIB + 1], "once");
});

test("64 KiB more and more within 5 ms are one ack when they are over", () => {
  using clocked = new Clocked();
  for (const passes of [3, 1]) {
    clocked.acks.arrived(64 * KIB);
    clocked.passes(passes);
  }
  clocked.acks.arrived(64 * KIB);
  assert.deepEqual(clocked.passes(1), [192 * KIB]);
  assert.deepEqual(clocked.passes(100), []);
});

test("an ack that is sent for another reason is not sent again", () => {
  using clocked = new Clocked();
  clocked.acks.arrived(64 * KIB);
  clocked.acks.arrived(64 * KIB);
  clocked.acks.now();
  assert.deepEqual(clocked.passes(100), []);
});

test("after a hold the next 64 KiB are acknowledged at once", () => {
  using clocked = new Clocked();
  clocked.acks.arrived(64 * KIB);
  clocked.acks.arrived(64 * KIB);
  clocked.acks.hold();
  assert.deepEqual(clocked.passes(10), []);
  clocked.acks.release();
  clocked.acks.arrived(1);
  assert.deepEqual(clocked.sent, [128 * KIB + 1]);
});

test("a write acknowledges nothing when nothing new has arrived", () => {
  using clocked = new Clocked();
  clocked.acks.beforeWrite();
  assert.deepEqual(clocked.sent, []);
});

test("bytes without a write to go with are acknowledged 10 ms after the first of them", () => {
  using clocked = new Clocked();
  clocked.acks.arrived(1);
  assert.deepEqual(clocked.passes(5), []);
  clocked.acks.arrived(1);
  assert.deepEqual(clocked.passes(5), [2]);
  assert.deepEqual(clocked.passes(1_000), []);
});

test("bytes that an ack has covered start no other", () => {
  using clocked = new Clocked();
  clocked.acks.arrived(1);
  clocked.passes(8);
  clocked.acks.beforeWrite();
  assert.deepEqual(clocked.sent, [1]);
  clocked.passes(1);
  clocked.acks.arrived(1);
  assert.deepEqual(clocked.passes(9), []);
  assert.deepEqual(clocked.passes(1), [2]);
});

test("while it is held nothing is acknowledged, and afterwards what is due", () => {
  using clocked = new Clocked();
  clocked.acks.hold();
  clocked.acks.arrived(200 * KIB);
  clocked.acks.beforeWrite();
  assert.deepEqual(clocked.passes(1_000), []);
  clocked.acks.release();
  assert.deepEqual(clocked.passes(10), [200 * KIB]);
});

test("the rate of what arrives is that of the last second, and is not known after a silence", () => {
  using clocked = new Clocked();
  for (let ms = 0; ms < 2_500; ms += 50) {
    clocked.acks.arrived(1_000);
    clocked.passes(50);
  }
  const rate = clocked.acks.bytesPerSecond ?? 0;
  assert.ok(rate > 19_000 && rate < 21_000, `${rate} B/s`);
  clocked.passes(5_001);
  assert.equal(clocked.acks.bytesPerSecond, undefined);
});
