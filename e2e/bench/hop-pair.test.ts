import assert from "node:assert/strict";
import { test } from "node:test";
import { connectThrough } from "../harness/caller.ts";
import { echoTarget } from "../harness/targets/plain.ts";
import { missingProgram } from "../proxies/harness/missing.ts";
import { startHopPair } from "./hop-pair.ts";

test("the two servers that the bench measures carry a CONNECT, over the hop and without", {
  skip: missingProgram("nats-server"),
}, async () => {
  await using echo = await echoTarget();
  await using pair = await startHopPair({ echo: echo.port });
  for (const contender of [pair.over, pair.direct]) {
    const { path = "", connect = "" } = contender.dial("echo");
    await using connection = await connectThrough({ path }, connect);
    assert.equal(connection.status, 200, contender.name);
  }
});
