import assert from "node:assert/strict";
import { once } from "node:events";
import { connect as dialPlain } from "node:net";
import { test } from "node:test";
import { until } from "../shared/basics/testing/wait.ts";
import type { Server } from "./server.ts";
import { CONNECT, callerOf, collect, start } from "./testing/server.ts";

test("a flood of unauthenticated peers is a few lines of the log, and every one is counted", async () => {
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
