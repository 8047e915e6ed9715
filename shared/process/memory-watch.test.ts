import assert from "node:assert/strict";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { MemoryWatch } from "./memory-watch.ts";

const MIB = 1024 * 1024;

/** A control group of 1,000 MiB whose use the test says, and what the pool hears of it. */
class Group implements Disposable {
  readonly heard: (readonly [excess: number, isFull: boolean])[] = [];
  readonly #folder = mkdtempSync(join(tmpdir(), "culvert-memory-watch-"));
  readonly #watch: MemoryWatch;

  constructor(usedMib: number, cacheMib = 0) {
    this.use(usedMib, cacheMib);
    const group = { limit: 1_000 * MIB, folder: this.#folder, version: 2 } as const;
    const onProcess = (excess: number, isFull = false) => void this.heard.push([Math.round(excess / MIB), isFull]);
    this.#watch = new MemoryWatch(group, { onProcess });
  }

  use(usedMib: number, cacheMib = 0): void {
    writeFileSync(join(this.#folder, "memory.stat"), `anon 1\nfile ${cacheMib * MIB}\n`);
    writeFileSync(join(this.#folder, "memory.current"), `${usedMib * MIB}\n`);
  }

  async next(): Promise<readonly [excess: number, isFull: boolean] | undefined> {
    this.heard.length = 0;
    const deadline = performance.now() + 10_000;
    while (this.heard.length === 0 && performance.now() < deadline) await sleep(5);
    return this.heard[0];
  }

  [Symbol.dispose](): void {
    this.#watch.stop();
    rmSync(this.#folder, { recursive: true });
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

/** 16 MiB that nobody has: too few for V8 to collect them while nothing else is allocated. */
function leaveGarbage(): void {
  Array.from({ length: 16 }, () => Buffer.alloc(MIB));
}

test("where memory is short garbage is collected, and nowhere else", async () => {
  using group = new Group(500);
  await group.next();
  const before = process.memoryUsage().arrayBuffers;
  leaveGarbage();
  const left = () => process.memoryUsage().arrayBuffers - before;
  await group.next();
  await group.next();
  assert.ok(left() >= 16 * MIB);
  group.use(700);
  const deadline = performance.now() + 10_000;
  while (left() > MIB && performance.now() < deadline) await sleep(20);
  assert.ok(left() <= MIB, `${left()} bytes are left`);
});

test("a group that cannot be read asks for nothing", async () => {
  using group = new Group(700);
  const folder = mkdtempSync(join(tmpdir(), "culvert-memory-watch-"));
  const heard: number[] = [];
  const watch = new MemoryWatch(
    { limit: 1_000, folder: join(folder, "gone"), version: 1 },
    { onProcess: (excess) => void heard.push(excess) },
  );
  await group.next();
  while (heard.length === 0) await sleep(5);
  watch.stop();
  rmSync(folder, { recursive: true });
  assert.deepEqual([...new Set(heard)], [0]);
});
