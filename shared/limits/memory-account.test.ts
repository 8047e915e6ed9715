import assert from "node:assert/strict";
import { test } from "node:test";
import { Queue, type QueueNode } from "../basics/collections.ts";
import { HeldBytes, type Reclaimable } from "./memory-account.ts";

/** An account that keeps what has entered it, as a share of the pool does. */
class Account {
  held = 0;
  readonly holders = new Queue<Reclaimable>();

  hold(delta: number): void {
    this.held += delta;
  }

  enter(node: QueueNode<Reclaimable>): void {
    this.holders.join(node);
  }

  get both(): readonly number[] {
    return [this.held, this.holders.size];
  }
}

test("bytes that another account pays for are reclaimed by that one, and those that come later, too", () => {
  const [before, now] = [new Account(), new Account()];
  const bytes = new HeldBytes(before, () => bytes.clear());
  bytes.add(100);
  bytes.moveTo(now);
  assert.deepEqual(
    [before.both, now.both],
    [
      [0, 0],
      [100, 1],
    ],
  );
  bytes.add(10);
  for (const holder of now.holders) holder.evict();
  assert.deepEqual([before.both, now.both, bytes.held], [[0, 0], [0, 0], 0]);
});
