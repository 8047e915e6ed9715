import assert from "node:assert/strict";
import { Writable } from "node:stream";
import { test } from "node:test";
import { setImmediate as turn } from "node:timers/promises";
import { gatherWrites } from "./gathered-writes.ts";

const KIB = 1024;

/** Takes all at once, and remembers how much came with each system call. */
class Wire extends Writable {
  readonly calls: number[] = [];

  override _write(chunk: Buffer, _encoding: string, done: () => void): void {
    this.calls.push(chunk.length);
    done();
  }

  override _writev(chunks: { chunk: Buffer }[], done: () => void): void {
    this.calls.push(chunks.reduce((sum, { chunk }) => sum + chunk.length, 0));
    done();
  }

  gather(bytes: number): void {
    gatherWrites(this);
    this.write(Buffer.alloc(bytes));
  }
}

async function turns(count: number): Promise<void> {
  for (let index = 0; index < count; index++) await turn();
}

test("what is written in one turn is one call at its end", async () => {
  const wires = [new Wire(), new Wire()];
  for (const bytes of [1, 10, 100]) for (const wire of wires) wire.gather(bytes);
  assert.deepEqual(
    wires.flatMap((wire) => wire.calls),
    [],
  );
  await turn();
  for (const wire of wires) assert.deepEqual(wire.calls, [111]);
});

test("a part of a bulk transfer waits for the rest, which goes at the end of its turn", async () => {
  const wire = new Wire();
  wire.gather(32 * KIB);
  await turn();
  assert.deepEqual(wire.calls, []);
  wire.gather(32 * KIB);
  await turn();
  assert.deepEqual(wire.calls, [64 * KIB]);
});

test("a part for which no rest comes goes after two turns more", async () => {
  const wire = new Wire();
  wire.gather(32 * KIB);
  await turns(2);
  assert.deepEqual(wire.calls, []);
  await turn();
  assert.deepEqual(wire.calls, [32 * KIB]);
});

test("nobody waits for another's part, and what is large goes at once", async () => {
  const [part, word, large] = [new Wire(), new Wire(), new Wire()];
  part.gather(32 * KIB);
  word.gather(10);
  large.gather(48 * KIB);
  await turn();
  assert.deepEqual([part.calls, word.calls, large.calls], [[], [10], [48 * KIB]]);
  for (let index = 0; index < 5; index++) {
    word.gather(10);
    await turn();
    assert.equal(word.calls.length, index + 2);
  }
  assert.deepEqual(part.calls, [32 * KIB]);
});

test("an end sends what waits before it, and a socket that is destroyed is forgotten", async () => {
  const [ended, destroyed] = [new Wire(), new Wire()];
  ended.gather(32 * KIB);
  ended.end();
  assert.deepEqual(ended.calls, [32 * KIB]);
  destroyed.gather(32 * KIB);
  destroyed.destroy();
  await turns(4);
  assert.deepEqual(destroyed.calls, []);
  const next = new Wire();
  next.gather(1);
  await turn();
  assert.deepEqual(next.calls, [1]);
});
