import assert from "node:assert/strict";
import { Writable } from "node:stream";
import { afterEach, mock, test } from "node:test";
import { setImmediate as turn } from "node:timers/promises";
import { GatheredWrites } from "./pump.ts";

const KIB = 1024;

/** Turns take as long as the test says. */
let nowMs = 0;
mock.method(performance, "now", () => nowMs);

/** None waits for the next test. */
afterEach(() => turns(4));

/** Takes all at once, and remembers how much came with each system call. */
class Wire extends Writable {
  readonly calls: number[] = [];
  readonly #gathered = new GatheredWrites(this);

  override _write(chunk: Buffer, _encoding: string, done: () => void): void {
    this.calls.push(chunk.length);
    done();
  }

  override _writev(chunks: { chunk: Buffer }[], done: () => void): void {
    this.calls.push(chunks.reduce((sum, { chunk }) => sum + chunk.length, 0));
    done();
  }

  gather(bytes: number): void {
    this.#gathered.write(Buffer.alloc(bytes));
  }
}

async function turns(count: number): Promise<void> {
  for (let index = 0; index < count; index++) await turn();
}

test("a single short write is sent at once, and those that follow it in one call at the end of their turn", async () => {
  const wires = [new Wire(), new Wire()];
  for (const bytes of [4 * KIB - 1, 1, 10, 100]) for (const wire of wires) wire.gather(bytes);
  for (const wire of wires) assert.deepEqual(wire.calls, [4 * KIB - 1]);
  await turn();
  for (const wire of wires) assert.deepEqual(wire.calls, [4 * KIB - 1, 111]);
});

test("a longer write is sent at the end of its turn", async () => {
  const wire = new Wire();
  wire.gather(4 * KIB);
  wire.gather(1);
  assert.deepEqual(wire.calls, []);
  await turn();
  assert.deepEqual(wire.calls, [4 * KIB + 1]);
});

test("in each turn the first short write is sent at once", async () => {
  const wire = new Wire();
  for (let count = 1; count <= 3; count++) {
    wire.gather(1);
    assert.equal(wire.calls.length, count);
    await turn();
  }
  wire.gather(4 * KIB);
  await turn();
  wire.gather(1);
  assert.deepEqual(wire.calls, [1, 1, 1, 4 * KIB, 1], "also behind a turn that gathered");
});

test("a short write behind a part that waits for the next turns is sent with it", async () => {
  const wire = new Wire();
  wire.gather(16 * KIB);
  await turn();
  wire.gather(1);
  assert.deepEqual(wire.calls, []);
  await turns(2);
  assert.deepEqual(wire.calls, [16 * KIB + 1]);
});

test("however long a turn is, only its first short write is sent at once", async () => {
  const wire = new Wire();
  for (let count = 0; count < 4; count++) {
    wire.gather(1);
    nowMs += 5;
  }
  await turn();
  assert.deepEqual(wire.calls, [1, 3]);
});

test("a part of a bulk transfer waits for the rest, which is sent at the end of its turn", async () => {
  const wire = new Wire();
  wire.gather(32 * KIB);
  await turn();
  assert.deepEqual(wire.calls, []);
  wire.gather(32 * KIB);
  await turn();
  assert.deepEqual(wire.calls, [64 * KIB]);
});

for (const [bytes, more] of [
  [16 * KIB - 1, 0],
  [16 * KIB, 2],
  [48 * KIB - 1, 2],
  [48 * KIB, 0],
] as const) {
  test(`${bytes} bytes behind which nothing comes wait for ${more} turns more`, async () => {
    const wire = new Wire();
    wire.gather(bytes);
    await turns(more);
    assert.deepEqual(wire.calls, []);
    await turn();
    assert.deepEqual(wire.calls, [bytes]);
  });
}

test("when turns are long a part does not wait for the next", async () => {
  const wire = new Wire();
  wire.gather(32 * KIB);
  nowMs += 2;
  await turn();
  assert.deepEqual(wire.calls, [32 * KIB]);
});

test("a socket does not wait for the part of another one", async () => {
  const [part, word] = [new Wire(), new Wire()];
  part.gather(32 * KIB);
  for (let count = 1; count <= 5; count++) {
    word.gather(10);
    await turn();
    assert.equal(word.calls.length, count);
  }
  assert.deepEqual(part.calls, [32 * KIB]);
});

test("an end sends what waits before it; a socket that is destroyed does not hold up others", async () => {
  const [ended, destroyed] = [new Wire(), new Wire()];
  ended.gather(32 * KIB);
  ended.end();
  assert.deepEqual(ended.calls, [32 * KIB]);
  destroyed.gather(32 * KIB);
  destroyed.destroy();
  await turns(4);
  assert.deepEqual(destroyed.calls, []);
  const next = new Wire();
  next.gather(4 * KIB);
  await turn();
  assert.deepEqual(next.calls, [4 * KIB]);
});
