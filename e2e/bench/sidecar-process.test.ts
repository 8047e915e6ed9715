import assert from "node:assert/strict";
import { test } from "node:test";
import { connectThrough } from "../harness/caller.ts";
import { echoTarget } from "../harness/targets/plain.ts";
import { startCulvertPair } from "./culvert.ts";
import { startSidecar } from "./sidecar-process.ts";

test("the sidecar that the bench measures carries a CONNECT", async () => {
  await using echo = await echoTarget();
  const ports = { source: 0, megabyte: 0, sink: 0, stuck: 0, echo: echo.port };
  await using pair = await startCulvertPair(ports);
  await using sidecar = await startSidecar(pair, ports);
  const { port = 0, connect = "" } = sidecar.dial("echo");
  await using connection = await connectThrough({ host: "127.0.0.1", port }, connect);
  assert.equal(connection.status, 200);
});
