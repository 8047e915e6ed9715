import assert from "node:assert/strict";
import type { LookupAddress } from "node:dns";
import { type AddressInfo, createServer, type Socket } from "node:net";
import { test } from "node:test";
import { blackHoleTarget, freePort } from "../../e2e/harness/targets/absent.ts";
import { listenOnLoopback } from "../../e2e/harness/targets/tcp.ts";
import { deferred } from "../basics/promises.ts";
import { until } from "../basics/testing/wait.ts";
import { AddressRace } from "./address-race.ts";

const list = (...addresses: string[]): LookupAddress[] =>
  addresses.map((address) => ({ address, family: address.includes(":") ? 6 : 4 }));

function start(addresses: readonly LookupAddress[], port: number) {
  const { promise, resolve, reject } = deferred<Socket>();
  const race = new AddressRace(addresses, { port, socket: {}, onConnected: resolve, onFailed: reject });
  return { race, promise };
}

const sockets = (): number => process.getActiveResourcesInfo().filter((kind) => kind.startsWith("TCPSocket")).length;
const timers = (): number => process.getActiveResourcesInfo().filter((kind) => kind === "Timeout").length;

async function failure(promise: Promise<Socket>): Promise<AggregateError & NodeJS.ErrnoException> {
  return await promise.then(
    () => assert.fail("it connected"),
    (error) => error,
  );
}

test("an address whose first SYN was lost is connected to, although all others were tried meanwhile and are silent", async () => {
  await using lossy = await blackHoleTarget("127.0.0.1");
  await using silent = await blackHoleTarget("127.0.0.2", lossy.port);
  await using another = await blackHoleTarget("127.0.0.3", lossy.port);
  const before = sockets();
  const races = [
    [lossy.host, silent.host, another.host],
    [silent.host, lossy.host, another.host],
  ].map((hosts) => ({ hosts, ...start(list(...hosts), lossy.port) }));
  for (const { race, hosts } of races) {
    await until(() => race.causes === hosts.map((host) => `${host}: no answer`).join(", "), "an attempt at each");
  }
  lossy.open();
  for (const { promise } of races) {
    const socket = await promise;
    assert.equal(socket.remoteAddress, lossy.host);
    socket.destroy();
  }
  await until(() => sockets() === before, "the end of the other attempts");
});

test("of five silent addresses four are tried at once, and the last one may still answer", async () => {
  await using first = await blackHoleTarget("127.0.0.1");
  const { port } = first;
  await using second = await blackHoleTarget("127.0.0.2", port);
  await using third = await blackHoleTarget("127.0.0.3", port);
  await using fourth = await blackHoleTarget("127.0.0.4", port);
  await using fifth = await blackHoleTarget("127.0.0.5", port);
  const before = sockets();
  const hosts = [first, second, third, fourth, fifth].map(({ host }) => host);
  const { race, promise } = start(list(...hosts), port);
  await until(() => race.causes.startsWith("127.0.0.1: ETIMEDOUT, 127.0.0.2: no answer"));
  await until(() => sockets() - before === 4, "the end of the first attempt");
  fifth.open();
  const socket = await promise;
  assert.equal(socket.remoteAddress, fifth.host);
  socket.destroy();
  await until(() => sockets() === before, "the end of the other attempts");
});

test("a socket that has won has one error listener, and nothing of the race", async (t) => {
  const server = createServer();
  await listenOnLoopback(server);
  t.after(() => server.close());
  const { port } = server.address() as AddressInfo;
  for (const addresses of [list("127.0.0.1"), list("127.0.0.2", "127.0.0.1"), list("127.0.0.1", "::1")]) {
    const before = timers();
    const socket = await start(addresses, port).promise;
    assert.equal(socket.remoteAddress, "127.0.0.1");
    assert.deepEqual([socket.listenerCount("error"), socket.listenerCount("connect")], [1, 0]);
    assert.ok(timers() <= before);
    socket.destroy();
  }
});

test("the next address is tried as soon as one has failed, in turns of the families, and each has a cause", async () => {
  const port = await freePort();
  const addresses = list("127.0.0.1", "127.0.0.2", "127.0.0.3", "::1");
  const error = await failure(start(addresses, port).promise);
  assert.equal(error.code, "ECONNREFUSED");
  const order = ["127.0.0.1", "::1", "127.0.0.2", "127.0.0.3"];
  assert.equal(error.message, order.map((address) => `${address}: ECONNREFUSED`).join(", "));
  assert.equal(error.errors.length, 4);
});

test("the error of one address alone is the kernel's", async () => {
  const port = await freePort();
  const error = await failure(start(list("127.0.0.1"), port).promise);
  assert.deepEqual([error.code, error.message], ["ECONNREFUSED", `connect ECONNREFUSED 127.0.0.1:${port}`]);
});

test("a refusal tells more than a network that is not there, and a long list is cut", async () => {
  const port = await freePort();
  const error = await failure(start(list("255.255.255.255", "127.0.0.1"), port).promise);
  assert.equal(error.code, "ECONNREFUSED");
  assert.match(error.message, /^255\.255\.255\.255: E[A-Z]+, 127\.0\.0\.1: ECONNREFUSED$/);
  const many = list(...Array.from({ length: 9 }, (_, index) => `127.0.0.${index + 1}`));
  assert.match((await failure(start(many, port).promise)).message, /127\.0\.0\.4: ECONNREFUSED, 5 more$/);
});

test("a race that is destroyed leaves neither sockets nor timers, and says nothing", async () => {
  await using hole = await blackHoleTarget();
  const before = [sockets(), timers()];
  const { race } = start(list("127.0.0.1", "127.0.0.1", "127.0.0.1"), hole.port);
  await until(() => sockets() === (before[0] ?? 0) + 2);
  race.destroy();
  race.destroy();
  await until(() => sockets() === before[0] && timers() <= (before[1] ?? 0));
});
