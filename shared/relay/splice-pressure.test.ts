import assert from "node:assert/strict";
import { Duplex, duplexPair, Readable } from "node:stream";
import { test } from "node:test";
import { setImmediate as turn } from "node:timers/promises";
import { until } from "../basics/testing/wait.ts";
import { splice } from "./splice.ts";

const KIB = 1024;
const MIB = 1024 * KIB;

/** A Duplex that takes bytes only when told to, and never ends by itself. */
class Valve extends Duplex {
  taken = 0;
  #held: (() => void) | undefined;
  #open = false;

  override _read(): void {}

  override _write(chunk: Buffer, _encoding: BufferEncoding, done: () => void): void {
    const take = (): void => {
      this.taken += chunk.length;
      done();
    };
    if (this.#open) setImmediate(take);
    else this.#held = take;
  }

  /** Takes the chunk that waits. */
  takeOne(): void {
    const take = this.#held;
    this.#held = undefined;
    take?.();
  }

  open(): void {
    this.#open = true;
    this.takeOne();
  }
}

/** Endless, or this number of chunks of 16 KiB. */
function source(chunks = Number.POSITIVE_INFINITY): Duplex {
  let left = chunks;
  const readable = new Readable({
    read() {
      setImmediate(() => this.push(left-- > 0 ? Buffer.alloc(16 * KIB) : null));
    },
  });
  return Duplex.from({ readable, writable: new Valve() });
}

test("a sink that never drains holds 64 KiB and a chunk, and one with a larger mark up to that mark", async () => {
  for (const [highWaterMark, corkTarget, bound] of [
    [16 * KIB, false, 80 * KIB],
    [16 * KIB, true, 80 * KIB],
    [256 * KIB, false, 272 * KIB],
  ] as const) {
    const endless = source();
    const sink = new Valve({ writableHighWaterMark: highWaterMark });
    const spliced = splice(endless, sink, { corkTarget });
    await until(() => sink.writableLength >= Math.max(highWaterMark, 64 * KIB));
    for (let index = 0; index < 50; index++) await turn();
    assert.ok(sink.writableLength <= bound, `${sink.writableLength} of ${bound}`);
    endless.destroy();
    await spliced;
  }
});

test("a sink that drains again gets the rest, whatever its high-water mark", async () => {
  for (const highWaterMark of [1, 16 * KIB, 64 * KIB, 200 * KIB, MIB]) {
    const sink = new Valve({ writableHighWaterMark: highWaterMark });
    const finite = source(100);
    const spliced = splice(finite, sink);
    for (let index = 0; index < 20; index++) await turn();
    sink.open();
    await until(() => sink.writableFinished);
    assert.equal(sink.taken, 100 * 16 * KIB);
    sink.destroy();
    await spliced;
  }
});

test("a side that takes nothing of what is held for it for too long ends the splice", async () => {
  const cases: [string, (caller: Duplex) => void][] = [
    ["little held, and nothing more to come", (caller) => caller.write(Buffer.alloc(100))],
    ["held behind an end", (caller) => caller.end(Buffer.alloc(100))],
    ["more than may wait", (caller) => caller.write(Buffer.alloc(200 * KIB))],
  ];
  const awake = setInterval(() => {}, 1_000); // sockets would keep the process alive; the check for stalls does not
  await Promise.all(
    cases.map(async ([name, send]) => {
      const [caller, inner] = duplexPair();
      const sink = new Valve();
      const resets: string[] = [];
      const since = performance.now();
      const spliced = splice(inner, sink, {
        stallTimeoutMs: 120,
        resetCaller: () => resets.push("caller"),
        resetTarget: () => resets.push("target"),
      });
      send(caller);
      const { endedBy, error } = await spliced;
      assert.deepEqual([endedBy, resets], ["stall", ["caller", "target"]], name);
      assert.match(error?.message ?? "", /took no byte for too long/);
      const tookMs = performance.now() - since;
      assert.ok(tookMs >= 119, `${name}: ${tookMs}`);
    }),
  );
  clearInterval(awake);
});

test("a side that begins to take nothing just before a check has all of the time, too", async (t) => {
  t.mock.timers.enable({ apis: ["setInterval"] });
  const [caller, inner] = duplexPair();
  const sink = new Valve();
  const spliced = splice(inner, sink, { stallTimeoutMs: 400_000 });
  t.mock.timers.tick(99_999);
  caller.write("x");
  await until(() => sink.writableLength > 0);
  t.mock.timers.tick(399_999);
  assert.equal(sink.destroyed, false);
  t.mock.timers.tick(2);
  assert.equal((await spliced).endedBy, "stall");
});

test("a silent splice without held bytes, and a slow one that moves, are no stall", async () => {
  const idle = [duplexPair(), duplexPair()] as const;
  const [slow, slowInner] = duplexPair();
  const sink = new Valve();
  let ended = 0;
  const splices = [
    splice(idle[0][1], idle[1][1], { stallTimeoutMs: 60 }),
    splice(slowInner, sink, { stallTimeoutMs: 60 }),
  ];
  for (const each of splices) void each.then(() => ended++);
  for (let index = 0; index < 300; index++) slow.write(Buffer.alloc(KIB));
  for (let index = 0; index < 16; index++) {
    await new Promise((resolve) => setTimeout(resolve, 15));
    sink.takeOne();
  }
  assert.equal(ended, 0);
  for (const side of [idle[0][1], slowInner]) side.destroy();
  await Promise.all(splices);
});

test("after the end of one side, a splice in which nothing passes for too long ends; one that moves does not", async () => {
  const awake = setInterval(() => {}, 1_000);
  for (const first of ["caller", "target"] as const) {
    const [caller, innerCaller] = duplexPair();
    const [target, innerTarget] = duplexPair();
    const spliced = splice(innerCaller, innerTarget, { stallTimeoutMs: 120 });
    const [ends, silent] = first === "caller" ? [caller, target] : [target, caller];
    ends.end("question");
    silent.resume();
    ends.resume();
    for (let index = 0; index < 20; index++) {
      await new Promise((resolve) => setTimeout(resolve, 15));
      silent.write("part of the answer");
    }
    assert.ok(!innerCaller.destroyed && !innerTarget.destroyed, "it moved for longer than the time");
    const since = performance.now();
    const { endedBy, error } = await spliced;
    assert.equal(endedBy, "stall");
    assert.equal(error?.message, `the ${first} had ended, and the other side was silent for too long`);
    const tookMs = performance.now() - since;
    assert.ok(tookMs >= 100, `${tookMs}`);
  }
  clearInterval(awake);
});
