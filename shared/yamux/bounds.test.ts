import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { OwnStreamIds, PeerStreamIds } from "./bounds.ts";

test("ids of the wrong side, of the session itself, and ids used before are refused", () => {
  const client = new PeerStreamIds(1);
  assert.match(client.use(0) ?? "", /the session itself/);
  assert.match(client.use(2) ?? "", /parity/);
  assert.equal(client.use(1), undefined);
  assert.match(client.use(1) ?? "", /used before/);
  const server = new PeerStreamIds(2);
  assert.match(server.use(1) ?? "", /parity/);
  assert.equal(server.use(2), undefined);
});

test("any order with few gaps is taken, each id once: against a set that remembers all", () => {
  const ids = fc.array(fc.integer({ min: 0, max: 400 }), { maxLength: 200 });
  const property = fc.property(fc.constantFrom(1 as const, 2 as const), ids, (first, tries) => {
    const used = new Set<number>();
    const peer = new PeerStreamIds(first);
    for (const id of tries) {
      const allowed = id > 0 && id % 2 === first % 2 && !used.has(id);
      assert.equal(peer.use(id) === undefined, allowed, `id ${id}`);
      if (allowed) used.add(id);
      for (const probe of [id - 2, id, id + 2]) assert.equal(peer.has(probe), used.has(probe), `has ${probe}`);
    }
  });
  fc.assert(property, { numRuns: 200 });
});

test("a peer that skips thousands of ids is refused, so that the gaps cannot grow without end", () => {
  const peer = new PeerStreamIds(1);
  assert.equal(peer.use(1 + 2 * 1024), undefined);
  assert.match(peer.use(5 + 2 * 1024) ?? "", /skips too many/);
  for (let id = 1; id < 2 * 1024; id += 2) assert.equal(peer.use(id), undefined);
  assert.equal(peer.use(5 + 2 * 1024), undefined);
});

test("a claimed id near 2^32 is refused without a walk to it", () => {
  const peer = new PeerStreamIds(1);
  const before = performance.now();
  assert.match(peer.use(0xffff_ffff) ?? "", /skips too many/);
  assert.ok(performance.now() - before < 2_000, "a walk over two thousand million ids takes far longer");
});

test("own ids rise by two from the side's first and end at the limit", () => {
  for (const first of [1, 2] as const) {
    const own = new OwnStreamIds(first, 3);
    assert.equal(own.has(first), false);
    assert.deepEqual([own.take(), own.take(), own.take()], [first, first + 2, first + 4]);
    assert.equal(own.exhausted, true);
    assert.deepEqual(
      [own.has(0), own.has(first + 4), own.has(first + 6), own.has(first + 1)],
      [false, true, false, false],
    );
    assert.deepEqual([own.owns(first + 6), own.owns(first + 1), own.owns(0)], [true, false, false]);
  }
});
