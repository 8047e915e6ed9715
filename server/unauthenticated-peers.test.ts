import assert from "node:assert/strict";
import { once } from "node:events";
import { connect as dialPlain, type Socket } from "node:net";
import { join } from "node:path";
import { test } from "node:test";
import { connect as dialTls } from "node:tls";
import type { Server } from "./server.ts";
import { agentOf, CONNECT, callerOf, collect, ESTABLISHED, pki, start, until } from "./testing/server.ts";

const MOST = 4;
const FLOOD = 20;

/**
 * Where silent connections can pile up: how one is made, the metric that counts those that were dropped, and how many
 * stay.
 */
interface Flood {
  readonly dial: (server: Server) => Socket;
  readonly counted: string;
  /** Absent: `MOST`. */
  readonly stay?: number;
}

const FLOODS: Readonly<Record<string, Flood>> = {
  "the callers' port, before TLS": {
    dial: ({ addresses }) => dialPlain({ port: addresses.callers?.port ?? 0, host: "127.0.0.1" }),
    counted: 'culvert_server_handshakes_failed_total{listener="callers"}',
  },
  "the agents' port, before TLS": {
    dial: ({ addresses }) => dialPlain({ port: addresses.agents?.port ?? 0, host: "127.0.0.1" }),
    counted: 'culvert_server_handshakes_failed_total{listener="agents"}',
    stay: MOST + 1, // the first came alone, and its handshake is in progress
  },
  "the callers' port, behind TLS": {
    dial: ({ addresses }) => dialTls({ port: addresses.callers?.port ?? 0, host: "127.0.0.1", ca: pki.ca.cert }),
    counted: 'culvert_server_waiting_connections_dropped_total{listener="callers"}',
  },
  "the agents' port, behind TLS": {
    dial: ({ addresses }) => dialTls({ port: addresses.agents?.port ?? 0, host: "127.0.0.1", ca: pki.ca.cert }),
    counted: 'culvert_server_waiting_connections_dropped_total{listener="agents"}',
  },
  "the unix socket": {
    dial: ({ addresses }) => dialPlain(addresses.uds ?? ""),
    counted: 'culvert_server_waiting_connections_dropped_total{listener="unix"}',
  },
};

for (const [where, { dial, counted, stay = MOST }] of Object.entries(FLOODS)) {
  test(`a flood of silent connections to ${where} stays within its bound and keeps nobody out`, async () => {
    await using server = await start({
      ...{ maxHandshakes: MOST, maxWaitingConnections: MOST, handshakeTimeoutMs: 60_000, headerTimeoutMs: 60_000 },
      udsName: join(pki.folder, "f.sock"),
    });
    const silent = Array.from({ length: FLOOD }, () => dial(server));
    let open = FLOOD;
    for (const socket of silent) {
      socket.on("error", () => {}).resume();
      socket.on("close", () => open--);
    }
    await until(() => open === stay);
    await agentOf(server);
    for (const socket of [await callerOf(server, pki.caller), dialPlain(server.addresses.uds ?? "")]) {
      const reads = collect(socket);
      socket.write(CONNECT);
      await until(() => reads.join("") === ESTABLISHED);
      socket.destroy();
    }
    assert.ok((await counterOf(server, counted)) >= FLOOD - stay);
    for (const socket of silent) socket.destroy();
  });
}

test("a flood of strangers is a few lines of the log, and every one is counted", async () => {
  await using server = await start();
  const told = (level: string) =>
    server.lines.filter((line) => line.level === level && line.msg === "TLS handshake failed").length;
  const { port = 0 } = server.addresses.callers ?? {};
  for (let count = 1; count <= 30; count++) {
    dialPlain({ port, host: "127.0.0.1" })
      .on("error", () => {})
      .end("no TLS at all, nor anything like it");
    await until(() => told("info") + told("debug") === count);
  }
  assert.equal(told("info"), 10);
  assert.equal(await counterOf(server, 'culvert_server_handshakes_failed_total{listener="callers"}'), 30);
});

test("a flood of CONNECTs without a certificate is a few lines of the log, and every one is answered and counted", async () => {
  await using server = await start();
  for (let count = 1; count <= 15; count++) {
    const socket = await callerOf(server, undefined);
    const reads = collect(socket);
    socket.write(CONNECT);
    await once(socket, "end");
    assert.match(reads.join(""), /^HTTP\/1\.1 407 /);
    socket.destroy();
  }
  const told = server.lines.filter(({ outcome }) => outcome === "unauthenticated").map(({ level }) => level);
  assert.deepEqual(told, [...Array(10).fill("warn"), ...Array(5).fill("debug")]);
  assert.equal(
    await counterOf(server, 'culvert_server_connections_total{cluster="default",outcome="unauthenticated"}'),
    15,
  );
});

test("who connects and goes without a word is counted, and no line of the log", async () => {
  await using server = await start();
  const { port = 0 } = server.addresses.agents ?? {};
  const failed = 'culvert_server_handshakes_failed_total{listener="agents"}';
  for (let count = 1; count <= 3; count++) {
    dialPlain({ port, host: "127.0.0.1" })
      .on("error", () => {})
      .end();
    await until(async () => (await counterOf(server, failed)) === count);
  }
  const told = server.lines.filter(({ msg }) => msg === "TLS handshake failed");
  assert.deepEqual(
    told.map(({ level }) => level),
    ["debug", "debug", "debug"],
  );
});

async function counterOf(server: Server, series: string): Promise<number> {
  const lines = (await server.metrics.registry.metrics()).split("\n");
  return Number(lines.find((line) => line.startsWith(`${series} `))?.slice(series.length) ?? 0);
}
