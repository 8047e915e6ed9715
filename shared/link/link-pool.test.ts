import assert from "node:assert/strict";
import { test } from "node:test";
import { PRESSURE } from "../limits/memory-account.ts";
import type { TransportConsumer } from "../yamux/transport.ts";
import { Link } from "./link.ts";
import { Pool, Wire } from "./testing/wire.ts";

const KIB = 1024;
const FLOOR = 64 * KIB;

const IGNORES: TransportConsumer = { onBytes: () => {}, onWritable: () => {}, onClosed: () => {} };

/** Two ends of a link over a wire that the test lets through; only the near end has the pool. */
function joined() {
  const pool = new Pool();
  const wire = new Wire();
  const options = { graceMs: 60_000, replayBytes: 1024 * KIB };
  const near = new Link("link", "near", wire.agent, { ...options, pool });
  const far = new Link("link", "far", wire.server, options);
  let asked = 0;
  near.start({ ...IGNORES, onWritable: () => asked++ });
  far.start(IGNORES);
  /** As a session would: as much as there is room for. Returns how much that was. */
  const fill = (): number => {
    const room = Math.max(0, near.room());
    if (room > 0) near.write([Buffer.alloc(room)], room);
    return room;
  };
  /** The far end gets bytes, and says so. Returns how often its word made the near end ask for more. */
  const deliver = (bytes: number): number => {
    wire.deliver("agent", bytes);
    far.acks.now();
    const before = asked;
    wire.deliver("server", 1);
    return asked - before;
  };
  /** Rounds that the bound alone held back: afterwards it is above the floor. */
  const grow = (): void => {
    for (let round = 0; round < 4; round++) {
      const sent = fill();
      assert.equal(fill(), 0, "the session has more to send");
      deliver(sent);
    }
    assert.ok(near.room() > FLOOR);
  };
  return { pool, wire, near, far, fill, deliver, grow };
}

test("while the pool is used up a link has no more than 64 KiB under way, and goes on with that", (t) => {
  const { pool, near, fill, deliver } = joined();
  t.after(() => near.destroy());
  pool.pressure = PRESSURE.over;
  for (let round = 0; round < 20; round++) {
    assert.equal(fill(), FLOOR);
    assert.equal(near.unacknowledged, FLOOR);
    assert.ok(deliver(FLOOR) > 0, "an ack wakes the session");
    assert.equal(near.unacknowledged, 0);
  }
});

test("what was under way before stays until it is acknowledged, and no more comes until it is below the floor", (t) => {
  const { pool, near, fill, deliver, grow } = joined();
  t.after(() => near.destroy());
  grow();
  const start = fill();
  assert.ok(start > FLOOR);
  pool.pressure = PRESSURE.over;
  deliver(start - FLOOR);
  assert.equal(fill(), 0);
  deliver(FLOOR - 1);
  assert.equal(fill(), FLOOR - 1);
});

test("rounds of a used-up pool teach nothing: after them a link has the bound it had before", (t) => {
  const { pool, near, fill, deliver, grow } = joined();
  t.after(() => near.destroy());
  grow();
  const before = near.room();
  pool.pressure = PRESSURE.over;
  for (let round = 0; round < 20; round++) {
    const sent = fill();
    assert.equal(fill(), 0, "the session has more to send");
    deliver(sent);
  }
  pool.pressure = PRESSURE.none;
  assert.equal(near.room(), before);
});

test("a new carrier has the bound of a new link, whatever the one before it has shown", (t) => {
  const { near, fill, deliver } = joined();
  t.after(() => near.destroy());
  const fresh = near.room();
  let sent = 0;
  for (let round = 0; round < 4; round++) {
    const bytes = fill();
    assert.equal(fill(), 0, "the session has more to send");
    deliver(bytes);
    sent += bytes;
  }
  assert.ok(near.room() > 2 * fresh, `${near.room()}`);
  near.resume(new Wire().agent, "near", { peerReceived: sent, named: 0 });
  assert.equal(near.room(), fresh);
});

test("a link holds in the pool what it keeps, and nothing once it has ended", (t) => {
  const { pool, wire, near, far, deliver } = joined();
  t.after(() => far.destroy());
  near.write([Buffer.alloc(1_000)], 1_000);
  assert.equal(pool.held, 1_000);
  deliver(400);
  assert.equal(pool.held, 600);
  wire.agent.notice();
  near.write([Buffer.alloc(50)], 50);
  assert.deepEqual([near.suspended, pool.held], [true, 650]);
  const next = new Wire();
  near.resume(next.agent, "near", { peerReceived: 900, named: 0 });
  assert.equal(pool.held, 150);
  near.destroy();
  near.write([Buffer.alloc(50)], 50);
  assert.equal(pool.held, 0);
});
