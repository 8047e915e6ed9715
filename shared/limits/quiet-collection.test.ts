import assert from "node:assert/strict";
import { type TestContext, test } from "node:test";
import { collectWhenQuiet } from "./quiet-collection.ts";

const MIB = 1024 * 1024;

/** A process whose load and heap the test says; a collection leaves `kept` MiB. */
class Process {
  heapMib = 36;
  kept = 20;
  busy = 0;
  collections = 0;
  readonly #t: TestContext;

  constructor(t: TestContext) {
    this.#t = t;
    t.mock.timers.enable({ apis: ["setInterval"] });
    const stop = collectWhenQuiet({
      load: () => this.busy,
      heap: () => this.heapMib * MIB,
      collect: () => {
        this.collections++;
        this.heapMib = this.kept;
      },
    });
    t.after(stop);
  }

  /** Returns how often garbage was collected within a minute. */
  minute(): number {
    return this.seconds(60);
  }

  seconds(count: number): number {
    const before = this.collections;
    this.#t.mock.timers.tick(count * 1_000);
    return this.collections - before;
  }
}

test("a process that is quiet collects twice after its start, and twice after a burst", (t) => {
  const process = new Process(t);
  assert.equal(process.minute(), 2);
  assert.equal(process.minute(), 0);
  process.heapMib = 180;
  assert.equal(process.minute(), 2);
  assert.equal(process.heapMib, 20);
  assert.equal(process.minute(), 0);
});

test("a process with traffic leaves the time of a collection to V8", (t) => {
  const process = new Process(t);
  process.minute();
  process.heapMib = 180;
  process.busy = 0.3;
  assert.equal(process.minute(), 0);
  process.busy = 0.01;
  assert.equal(process.minute(), 2);
});

test("the pause between two scrapes is no quiet time", (t) => {
  const process = new Process(t);
  process.minute();
  process.heapMib = 180;
  assert.equal(process.seconds(25), 0);
});

test("what is alive is not collected again and again", (t) => {
  const process = new Process(t);
  process.kept = 150;
  process.heapMib = 180;
  assert.equal(process.minute(), 2);
  assert.equal(process.minute(), 0);
});

test("growth counts from the least size, also where V8 itself has collected", (t) => {
  const process = new Process(t);
  process.kept = 150;
  process.heapMib = 180;
  assert.equal(process.minute(), 2);
  process.heapMib = 30;
  assert.equal(process.minute(), 0);
  process.heapMib = 60;
  process.kept = 25;
  assert.equal(process.minute(), 2);
});
