import assert from "node:assert/strict";
import { test } from "node:test";
import { setImmediate as turn } from "node:timers/promises";
import { until } from "../../shared/basics/testing/wait.ts";
import { agentOf, fetchText, freezablePath, start } from "../testing/server.ts";
import { roundTripsOf } from "./operator-ports.ts";

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

/** Of one turn. */
const MOST = 8;

/** More of them than are pinged in one turn, and those pinged so far: their answers come when the test says. */
function crowd() {
  const pinged: Array<(ms: number) => void> = [];
  const roundTrip = () => new Promise<number>((resolve) => pinged.push(resolve));
  return { pinged, tunnels: Array.from({ length: MOST + 1 }, () => ({ roundTrip })) };
}

test("many are pinged a few in each turn, and each has its time from then on", async (t) => {
  t.mock.timers.enable({ apis: ["setTimeout"] });
  const { pinged, tunnels } = crowd();
  const trips = roundTripsOf(tunnels);
  assert.equal(pinged.length, MOST);
  t.mock.timers.tick(999);
  await turn();
  assert.equal(pinged.length, MOST + 1);
  t.mock.timers.tick(999);
  pinged.at(-1)?.(5);
  assert.deepEqual([...(await trips)], [[tunnels.at(-1), 5]]);
});

test("a loop that sends pings slowly holds nobody up for long: the rest is not sent", async (t) => {
  t.mock.timers.enable({ apis: ["setTimeout"] });
  const { pinged, tunnels } = crowd();
  const trips = roundTripsOf(tunnels);
  t.mock.timers.tick(3_000);
  assert.equal((await trips).size, 0);
  await turn();
  assert.equal(pinged.length, MOST);
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

test("two servers with one id are told apart by their instance, which stays the same", async () => {
  await using one = await start({ serverId: "same" });
  await using other = await start({ serverId: "same" });
  const said = [one, one, other].map(({ addresses }) => fetchText(addresses.admin?.port, "/status"));
  const [first, again, second] = (await Promise.all(said)).map(({ text }) => JSON.parse(text));
  assert.equal(first.serverId, second.serverId);
  assert.equal(first.instance, again.instance);
  assert.notEqual(first.instance, second.instance);
});
