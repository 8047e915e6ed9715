import assert from "node:assert/strict";
import { once } from "node:events";
import { Socket } from "node:net";
import { type TestContext, test } from "node:test";
import { ClientConnections } from "./client-connections.ts";

function manyFrom(connections: ClientConnections, network: string, count: number) {
  return Array.from({ length: count }, () => {
    const client = new Socket();
    return { client, surplus: connections.enter(client, network) };
  });
}

test("one too many displaces the oldest of the network that has most, and a newcomer of another network gets in", () => {
  const connections = new ClientConnections(4, 60_000);
  const flood = manyFrom(connections, "10.0.0.1", 4);
  assert.deepEqual(
    flood.map(({ surplus }) => surplus),
    [undefined, undefined, undefined, undefined],
  );
  const [honest] = manyFrom(connections, "10.0.0.2", 1);
  assert.equal(honest?.surplus, flood[0]?.client);
  const [more] = manyFrom(connections, "10.0.0.1", 1);
  assert.equal(more?.surplus, flood[1]?.client);
  assert.equal(connections.size, 4);
});

test("connections past the young age stay, and if all are, the new one is dropped", (t: TestContext) => {
  let now = 0;
  t.mock.method(performance, "now", () => now);
  const connections = new ClientConnections(2, 15_000);
  const settled = manyFrom(connections, "10.0.0.1", 2);
  now = 15_000;
  const [newcomer] = manyFrom(connections, "10.0.0.2", 1);
  assert.equal(newcomer?.surplus, newcomer?.client);
  assert.deepEqual(
    [...connections],
    settled.map(({ client }) => client),
  );
});

test("a closed connection makes room once, and the last one ends the wait", async () => {
  const connections = new ClientConnections(2, 60_000);
  const [displaced, other] = manyFrom(connections, "10.0.0.1", 2).map(({ client }) => client);
  const [newcomer] = manyFrom(connections, "10.0.0.2", 1);
  assert.equal(newcomer?.surplus, displaced);
  const rest = [...connections];
  assert.deepEqual(rest, [other, newcomer?.client]);
  const empty = connections.empty(60_000);
  for (const client of [displaced, ...rest]) client?.destroy();
  await Promise.all(rest.map((client) => client.closed || once(client, "close")));
  await empty;
  assert.equal(connections.size, 0);
});
