import assert from "node:assert/strict";
import { once } from "node:events";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { buffer } from "node:stream/consumers";
import { test } from "node:test";
import { until } from "../shared/basics/testing/wait.ts";
import { callerOf, pki, start } from "./testing/server.ts";
import { answerOf } from "./testing/tenants.ts";

const STRANGERS = "0af7651916cd43dd8448eb211c80319c";
const CALLERS = "4bf92f3577b34da6a3ce929d0e0e4736";

test("a peer that is not authenticated does not choose what is traced", async (t) => {
  let spans = Buffer.alloc(0);
  const receiver = createServer(async (request, response) => {
    spans = Buffer.concat([spans, await buffer(request)]);
    response.end();
  });
  await once(receiver.listen(0, "127.0.0.1"), "listening");
  t.after(() => receiver.close().closeAllConnections());
  const otlpEndpoint = `http://127.0.0.1:${(receiver.address() as AddressInfo).port}`;
  await using server = await start({ otlpEndpoint, traceSamplingRatePerMillion: 0 });
  const connect = (trace: string): string =>
    `CONNECT 10.0.0.1:1 HTTP/1.1\r\nHost: x\r\nTraceparent: 00-${trace}-b7ad6b7169203331-01\r\n\r\n`;
  assert.match(await answerOf(await callerOf(server), connect(STRANGERS)), /^HTTP\/1\.1 407 /);
  assert.match(await answerOf(await callerOf(server, pki.caller), connect(CALLERS)), /^HTTP\/1\.1 503 /);
  await until(() => spans.includes(Buffer.from(CALLERS, "hex")));
  assert.ok(!spans.includes(Buffer.from(STRANGERS, "hex")));
});
