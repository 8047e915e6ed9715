import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { ByteQueue } from "./bytes.ts";

/** Of a read of 16 KiB, as TLS gives it. */
function pieceOf(length: number, fill: number): Buffer {
  return Buffer.alloc(Math.max(length, 16_384), fill).subarray(0, length);
}

function drained(backlog: ByteQueue): Buffer {
  const pieces: Buffer[] = [];
  for (let piece = backlog.take(); piece !== undefined; piece = backlog.take()) pieces.push(piece);
  return Buffer.concat(pieces);
}

test("whatever is added and taken, the bytes come out in order, and their number is known", () => {
  const action = fc.oneof(fc.integer({ min: 1, max: 20_000 }), fc.integer({ min: 1, max: 20 }), fc.constant("take"));
  const property = fc.property(fc.array(action, { maxLength: 300, size: "max" }), (actions) => {
    const backlog = new ByteQueue();
    const added: Buffer[] = [];
    const taken: Buffer[] = [];
    for (const [index, action] of actions.entries()) {
      if (action === "take") {
        const piece = backlog.take();
        if (piece !== undefined) taken.push(piece);
      } else {
        const piece = pieceOf(action as number, index);
        added.push(piece);
        backlog.add(piece);
      }
      const lengthOf = (pieces: Buffer[]) => pieces.reduce((sum, { length }) => sum + length, 0);
      assert.equal(backlog.bytes, lengthOf(added) - lengthOf(taken));
    }
    assert.deepEqual(Buffer.concat([...taken, drained(backlog)]), Buffer.concat(added));
    assert.equal(backlog.bytes, 0);
  });
  fc.assert(property);
});

test("a window full of pieces of one byte comes out in few pieces, which hold at most twice what is counted", () => {
  const backlog = new ByteQueue();
  for (let index = 0; index < 65_536; index++) backlog.add(pieceOf(1, index));
  const stores = new Set<ArrayBufferLike>();
  for (let piece = backlog.take(); piece !== undefined; piece = backlog.take()) stores.add(piece.buffer);
  const held = [...stores].reduce((sum, { byteLength }) => sum + byteLength, 0);
  assert.ok(held <= 2 * 65_536, `${held} bytes`);
  assert.ok(stores.size < 20, `${stores.size} pieces`);
});

test("small pieces come out in few as well that are reads of their own: each would cost several times its bytes", () => {
  for (const length of [1, 20, 200, 1_023]) {
    const backlog = new ByteQueue();
    const count = Math.ceil(65_536 / length);
    for (let index = 0; index < count; index++) backlog.add(Buffer.alloc(length));
    let pieces = 0;
    while (backlog.take() !== undefined) pieces++;
    assert.ok(pieces < 20, `${pieces} pieces of ${length} bytes`);
  }
});

test("a piece that is at least half of what it keeps alive is not copied", () => {
  const backlog = new ByteQueue();
  const large = pieceOf(8_192, 1);
  backlog.add(large);
  assert.equal(backlog.take(), large);
});
