import assert from "node:assert/strict";
import { Duplex } from "node:stream";
import { test } from "node:test";
import { AdminConnections, MAX_CONNECTIONS, maxConnections } from "./connections.ts";

function connectionFrom(remoteAddress: string): Duplex & { readonly remoteAddress: string } {
  return Object.assign(new Duplex({ read() {}, write: (_chunk, _encoding, done) => done() }), { remoteAddress });
}

test("the oldest connection of the network that has most makes room, and the newcomer gets in", () => {
  let dropped = 0;
  const connections = new AdminConnections({ max: 4, onConnection: () => {}, onDropped: () => dropped++ });
  const probe = connectionFrom("10.0.0.1");
  connections.add(probe);
  // Of one IPv6 network, and of one IPv4 address as both kinds of socket write it.
  const flood = ["2001:db8::1", "2001:db8::2", "2001:db8::3", "2001:db8::4"].map(connectionFrom);
  for (const one of flood) connections.add(one);
  assert.deepEqual(
    flood.map(({ destroyed }) => destroyed),
    [true, false, false, false],
  );
  const second = connectionFrom("::ffff:10.0.0.2");
  connections.add(second);
  assert.deepEqual([probe.destroyed, second.destroyed, flood[1]?.destroyed], [false, false, true]);
  assert.deepEqual([connections.size, dropped], [4, 2]);
  connections.destroyAll();
  assert.ok(probe.destroyed && second.destroyed);
});

test("of a small limit of open files they are a sixteenth, and always a few", () => {
  const table = [undefined, 1_048_576, 4_096, 1_024, 200, 20].map((limit) =>
    maxConnections(limit ?? Number.POSITIVE_INFINITY),
  );
  assert.deepEqual(table, [MAX_CONNECTIONS, 256, 256, 64, 12, 4]);
});
