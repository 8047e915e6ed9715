import assert from "node:assert/strict";
import { once } from "node:events";
import type { Socket } from "node:net";
import { test } from "node:test";
import { until } from "../basics/testing/wait.ts";
import type { TlsListenerOptions, VirtualHost } from "./listeners.ts";
import { type Fixture, listening, RECORDS_OF_UPLOAD, readsOfUpload } from "./testing/tls-clients.ts";

test("a client that comes alone skips the preface, and is read in buffers larger than a TLS record", async () => {
  await using it = await listening({ skipPrefaceBelow: 1 });
  assert.ok((await readsOfUpload(it)) < 0.75 * RECORDS_OF_UPLOAD);
});

const host = (it: Fixture, rest: Partial<VirtualHost> = {}): VirtualHost => ({
  get tls() {
    return it.files.content;
  },
  ...rest,
});

/** Clients that are read before their handshake begins. */
const READ_FIRST: Readonly<Record<string, (it: Fixture) => Promise<unknown>>> = {
  "a client that finds as many connections as may skip the preface": (it) => {
    it.tls();
    return it.next();
  },
  "a client that finds another one which has sent nothing": (it) => {
    it.tcp();
    return until(() => it.listener.handshakes === 1);
  },
};

for (const [who, others] of Object.entries(READ_FIRST)) {
  test(`${who} is read first`, async () => {
    await using it = await listening({ skipPrefaceBelow: who.includes("as many") ? 1 : 100 });
    await others(it);
    assert.ok((await readsOfUpload(it)) >= RECORDS_OF_UPLOAD);
  });
}

test("where handshakes are limited, a client that sends nothing uses none of them", async () => {
  let begun = 0;
  const limits = { isSet: true, budgetFor: () => ({ take: () => ++begun > 0 }), proved: () => {} };
  await using it: Fixture = await listening({
    skipPrefaceBelow: 100,
    hosts: {
      get single() {
        return host(it, { handshakes: limits });
      },
      find: () => undefined,
    },
  });
  it.tcp();
  await until(() => it.listener.handshakes === 1);
  assert.equal(begun, 0);
  it.tls();
  await it.next();
  assert.equal(begun, 1);
});

test("endWithoutPreface() ends only clients that skipped the preface and have not finished their handshake", async () => {
  await using it = await listening({ skipPrefaceBelow: 100 });
  const through = it.tls();
  const { socket } = await it.next();
  const unread = it.tcp();
  await until(() => it.listener.handshakes === 1);
  const read = it.tcp();
  await until(() => it.listener.handshakes === 2);
  it.listener.endWithoutPreface();
  await once(unread, "close");
  await until(() => it.listener.connections === 2);
  assert.deepEqual([it.listener.handshakes, read.destroyed], [1, false]);
  assert.match(it.failed.join(), /^silent \S+ the clusters of this port changed/);
  socket.write("still here");
  assert.equal(String((await once(through, "data"))[0]), "still here");
});

for (const [how, leave] of [
  ["resets", (socket: Socket) => socket.resetAndDestroy()],
  ["ends", (socket: Socket) => socket.end()],
  ["waits for the deadline", () => undefined],
] as const) {
  test(`a client that ${how} without a byte is reported once, as silent, whether the preface is read or not`, async () => {
    for (const skipPrefaceBelow of [0, 100]) {
      await using it = await listening({
        skipPrefaceBelow,
        handshakeTimeoutMs: how.startsWith("waits") ? 200 : 60_000,
      });
      const socket = it.tcp();
      await until(() => it.listener.handshakes === 1);
      leave(socket);
      await until(() => it.listener.connections === 0);
      assert.equal(it.failed.length, 1);
      assert.match(it.failed[0] ?? "", /^silent 127\.0\.0\.1:\d+ /);
      assert.equal(it.listener.handshakes, 0);
    }
  });
}

test("a client that comes alone and does not speak TLS is reported as failed", async () => {
  await using it = await listening({ skipPrefaceBelow: 100 });
  it.tcp().end("GET / HTTP/1.1\r\n\r\n");
  await until(() => it.failed.length > 0 && it.listener.connections === 0);
  assert.match(it.failed.join(), /^failed /);
});

test("a client that comes alone and sends nothing delays no other, and is dropped first", async () => {
  await using it = await listening({ skipPrefaceBelow: 100, maxHandshakes: 1 });
  const silent = it.tcp();
  await until(() => it.listener.handshakes === 1);
  it.tls();
  await it.next();
  await until(() => silent.destroyed);
  assert.match(it.failed.join(), /^dropped 127\.0\.0\.1:\d+ too many TLS handshakes at once/);
});

test("stopAccepting() ends one that has skipped the preface, and reports nothing", async () => {
  await using it = await listening({ skipPrefaceBelow: 100 });
  const silent = it.tcp();
  await until(() => it.listener.handshakes === 1);
  it.listener.stopAccepting();
  await once(silent, "close");
  assert.deepEqual([it.listener.handshakes, it.failed.length], [0, 0]);
});

/** Options with which something is read before TLS in any case. */
const READ_ANYWAY: Readonly<Record<string, Partial<TlsListenerOptions<VirtualHost>>>> = {
  "names are read": { hosts: { single: undefined, find: () => undefined } },
  "balancers say who is behind them": { proxyProtocol: { required: false, trusts: () => true } },
};

for (const [where, options] of Object.entries(READ_ANYWAY)) {
  test(`where ${where} no client begins before it has sent something`, async () => {
    await using it = await listening({ skipPrefaceBelow: 100, handshakeTimeoutMs: 200, ...options });
    await once(it.tcp(), "close");
    assert.match(it.failed.join(), /^silent \S+ TLS handshake timeout: it sent nothing$/);
  });
}
