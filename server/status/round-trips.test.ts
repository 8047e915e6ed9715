import assert from "node:assert/strict";
import { test } from "node:test";
import { agentOf, fetchText, freezablePath, start, until } from "../testing.ts";
import { roundTripsOf } from "./round-trips.ts";

const answering = (ms: number | undefined) => ({ roundTrip: () => Promise.resolve(ms) });

test("who answers is told, who has no way or does not answer in time is not, and holds nobody up for longer", async () => {
  const [near, far, lost] = [answering(1), answering(80), answering(undefined)];
  const silent = { roundTrip: () => new Promise<never>(() => {}) };
  assert.deepEqual(
    [...(await roundTripsOf([near, far, lost]))],
    [
      [near, 1],
      [far, 80],
    ],
  );
  assert.deepEqual([...(await roundTripsOf([near, silent], 1))], [[near, 1]]);
  assert.equal((await roundTripsOf([])).size, 0);
});

test("the status tells the round trip of now: none of before, where nothing comes back any more", async () => {
  await using server = await start();
  using path = await freezablePath(server);
  const { session } = await agentOf(server, { port: path.port });
  await until(() => [...server.tunnels.tunnels()].length === 1);
  const shown = async () => {
    const { clusters } = JSON.parse((await fetchText(server.addresses.admin?.port, "/status")).text);
    return clusters[0].tunnels[0].roundTripMs;
  };
  assert.equal(typeof (await shown()), "number");
  path.freeze();
  assert.equal(await shown(), null);
  session.destroy();
});
