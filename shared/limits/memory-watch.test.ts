import assert from "node:assert/strict";
import fs, { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { syncBuiltinESMExports } from "node:module";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { constants, type NodeGCPerformanceDetail, PerformanceObserver } from "node:perf_hooks";
import { test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { MemoryWatch } from "./memory-watch.ts";

const MIB = 1024 * 1024;

/** A control group of 1,000 MiB, in a slice of 2,000 MiB, whose use the test says, and what the pool hears of it. */
class Group implements Disposable {
  readonly heard: (readonly [excess: number, isFull: boolean])[] = [];
  readonly #slice = mkdtempSync(join(tmpdir(), "culvert-memory-watch-"));
  readonly #own = join(this.#slice, "own");
  readonly #watch: MemoryWatch;

  constructor(usedMib: number, cacheMib = 0) {
    mkdirSync(this.#own);
    this.use(usedMib, cacheMib);
    const limited = [
      { limit: 1_000 * MIB, folder: this.#own },
      { limit: 2_000 * MIB, folder: this.#slice },
    ];
    const onProcess = (excess: number, isFull = false) => void this.heard.push([Math.round(excess / MIB), isFull]);
    this.#watch = new MemoryWatch({ version: 2, own: this.#own, limited }, { onProcess });
  }

  use(usedMib: number, cacheMib = 0, neighboursMib = 0): void {
    for (const [folder, used] of [
      [this.#own, usedMib],
      [this.#slice, usedMib + neighboursMib],
    ] as const) {
      writeFileSync(join(folder, "memory.stat"), `anon 1\nfile ${cacheMib * MIB}\n`);
      writeFileSync(join(folder, "memory.current"), `${used * MIB}\n`);
    }
  }

  async next(): Promise<readonly [excess: number, isFull: boolean] | undefined> {
    this.heard.length = 0;
    const deadline = performance.now() + 10_000;
    while (this.heard.length === 0 && performance.now() < deadline) await sleep(5);
    return this.heard[0];
  }

  [Symbol.dispose](): void {
    this.#watch.stop();
    rmSync(this.#slice, { recursive: true });
  }
}

test("up to 60 % of the control group nothing is asked for, page cache not counted", async () => {
  using group = new Group(600);
  assert.deepEqual(await group.next(), [0, false]);
  group.use(950, 350);
  assert.deepEqual(await group.next(), [0, false]);
});

test("beyond 60 % so much is asked for, and beyond 75 % nothing new is let in, until it has gone", async () => {
  using group = new Group(700);
  assert.deepEqual(await group.next(), [100, false]);
  group.use(760);
  assert.deepEqual(await group.next(), [160, true]);
  group.use(500);
  assert.deepEqual(await group.next(), [0, false]);
});

test("what neighbours in the slice use is not asked for; what they leave of it bounds what may be used", async () => {
  using group = new Group(300);
  group.use(300, 0, 1_200);
  assert.deepEqual(await group.next(), [0, false]);
  group.use(300, 0, 1_600);
  assert.deepEqual(await group.next(), [60, false], "400 of 2,000 MiB are ours and free");
  group.use(300, 0, 1_690);
  assert.deepEqual(await group.next(), [114, true]);
});

test("a look reads each file of the kernel once, also where memory is short", async (t) => {
  const read = t.mock.method(fs, "readFileSync");
  syncBuiltinESMExports();
  t.after(() => {
    read.mock.restore();
    syncBuiltinESMExports();
  });
  using group = new Group(700);
  await group.next();
  const reads: number[] = [];
  for (let look = 0; look < 5; look++) {
    read.mock.resetCalls();
    await group.next();
    reads.push(read.mock.callCount());
  }
  // A collection may fall into one of them, after which the files are read again.
  assert.equal(Math.min(...reads), 4, "usage and page cache, of the group and of the slice");
});

/** 16 MiB that nobody has: too few for V8 to collect them while nothing else is allocated. */
function leaveGarbage(): void {
  Array.from({ length: 16 }, () => Buffer.alloc(MIB));
}

/** Collections that were asked for, not V8's own. */
class Collections {
  readonly seen: { readonly begun: number; readonly lasted: number }[] = [];
  readonly #observer = new PerformanceObserver((list) => {
    for (const entry of list.getEntries()) {
      const { kind, flags } = (entry as typeof entry & { detail: NodeGCPerformanceDetail }).detail;
      if (kind !== constants.NODE_PERFORMANCE_GC_MAJOR) continue;
      if (((flags ?? 0) & constants.NODE_PERFORMANCE_GC_FLAGS_FORCED) === 0) continue;
      this.seen.push({ begun: entry.startTime, lasted: entry.duration });
    }
  });

  constructor() {
    this.#observer.observe({ entryTypes: ["gc"] });
  }

  async until(count: number): Promise<void> {
    const deadline = performance.now() + 20_000;
    while (this.seen.length < count && performance.now() < deadline) {
      leaveGarbage();
      await sleep(5);
    }
    assert.ok(this.seen.length >= count, `${this.seen.length} collections`);
  }

  [Symbol.dispose](): void {
    this.#observer.disconnect();
  }
}

test("where memory is short garbage is collected, and nowhere else", async () => {
  using collections = new Collections();
  using group = new Group(500);
  leaveGarbage();
  await group.next();
  await group.next();
  assert.equal(collections.seen.length, 0);
  group.use(700);
  await collections.until(1);
});

test("the loop has ten times as long to itself as the last collection took", async (t) => {
  using collections = new Collections();
  // So much that is alive makes a collection slow.
  const alive = Array.from({ length: 300_000 }, (_, index) => ({ index, next: [index] }));
  using group = new Group(700);
  await collections.until(4);
  assert.ok(group.heard.length > 0 && alive.length > 0);
  const rests = collections.seen.slice(1).map(({ begun }, index) => {
    const before = collections.seen[index] as (typeof collections.seen)[number];
    return (begun - before.begun - before.lasted) / before.lasted;
  });
  t.diagnostic(
    `ms: ${collections.seen.map(({ lasted }) => Math.round(lasted))}; rests, times as long: ${rests.map(Math.round)}`,
  );
  assert.ok(Math.min(...rests) >= 10, `rests, in times of the collection before: ${rests.map(Math.round)}`);
});

test("a group that cannot be read asks for nothing", async () => {
  using group = new Group(700);
  const folder = mkdtempSync(join(tmpdir(), "culvert-memory-watch-"));
  const heard: number[] = [];
  const watch = new MemoryWatch(
    { version: 1, own: join(folder, "gone"), limited: [{ limit: 1_000, folder: join(folder, "gone") }] },
    { onProcess: (excess) => void heard.push(excess) },
  );
  await group.next();
  while (heard.length === 0) await sleep(5);
  watch.stop();
  rmSync(folder, { recursive: true });
  assert.deepEqual([...new Set(heard)], [0]);
});
