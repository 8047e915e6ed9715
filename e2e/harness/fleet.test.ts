import assert from "node:assert/strict";
import { once } from "node:events";
import { connect } from "node:net";
import { test } from "node:test";
import { Connection } from "./caller.ts";
import { http2Conversation, webSocketConversation } from "./conversations.ts";
import { Exchange, exchangeTarget } from "./exchange.ts";
import { startRelay } from "./faults.ts";
import { type TargetServer, tcpTarget } from "./targets/tcp.ts";
import { http2Target, webSocketTarget } from "./targets/web.ts";
import { waitFor } from "./wait.ts";

const ANSWER = { status: 200, reason: "", headers: new Map<string, string>() };
const LIVELY = { maxBytes: 50_000, maxPauseMs: 5 };

/** A connection straight to something, in place of a CONNECT. */
async function straightTo({ host, port }: Pick<TargetServer, "host" | "port">): Promise<Connection> {
  const socket = connect({ host, port, allowHalfOpen: true, noDelay: true });
  socket.on("error", () => {});
  await once(socket, "connect");
  return new Connection(ANSWER, Buffer.alloc(0), socket, 0);
}

for (const how of ["fin", "rst"] as const) {
  test(`an exchange that was cut by ${how} says so when it is finished, and who it was`, async () => {
    await using target = await exchangeTarget();
    await using relay = await startRelay(target);
    const exchange = new Exchange("lively 3", await straightTo(relay), target, 9, LIVELY);
    await waitFor(() => exchange.received.up > 0);
    relay.cut(how);
    await waitFor(() => relay.open === 0);
    await assert.rejects(exchange.finish(), /^Error: lively 3, at the (caller|target): /);
  });
}

test("an exchange notices a byte that is wrong, and bytes that are missing", async () => {
  await using target = await exchangeTarget();
  for (const [seed, what, change] of [
    [10, "wrong", (chunk: Buffer) => Buffer.from(chunk).fill(0, 20, 21)],
    [11, "missing", (chunk: Buffer) => Buffer.concat([chunk.subarray(0, 20), chunk.subarray(21)])],
  ] as const) {
    await using liar = await tcpTarget((socket) => {
      const other = connect({ host: target.host, port: target.port, allowHalfOpen: true });
      socket.on("close", () => other.destroy());
      other.on("error", () => {}).pipe(socket);
      socket.on("data", (chunk: Buffer) => other.write(chunk.length > 100 ? change(chunk) : chunk));
      socket.on("end", () => other.end());
    });
    const exchange = new Exchange(what, await straightTo(liar), target, seed, LIVELY);
    await waitFor(() => exchange.received.up > 100_000);
    await assert.rejects(exchange.finish(), /at the target: other bytes than were sent/);
  }
});

test("conversations that are cut say so", async () => {
  await using http2 = await http2Target();
  await using webSocket = await webSocketTarget();
  await using before2 = await startRelay(http2);
  await using beforeWs = await startRelay(webSocket);
  await using one = await http2Conversation("one", 1, http2, () => straightTo(before2));
  await using other = await webSocketConversation("other", 2, () => straightTo(beforeWs));
  await waitFor(() => one.rounds >= 1 && other.rounds >= 1);
  before2.cut("rst");
  beforeWs.cut("fin");
  await assert.rejects(one.finish(), /^Error: one, after \d+ answers: /);
  await assert.rejects(other.finish(), /^Error: other, after \d+ answers: /);
});
