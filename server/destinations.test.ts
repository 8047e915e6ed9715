import assert from "node:assert/strict";
import { test } from "node:test";
import { until } from "../shared/basics/testing/wait.ts";
import { encodeDestination } from "../shared/wire/destination-heads.ts";
import { FEATURES } from "../shared/wire/handshake.ts";
import { agentOf, start } from "./testing/server.ts";

test("destinations are served to agents that have named the feature, and to no doctor", async () => {
  await using server = await start({ allowedDestination: ["kas.internal:6443"] });
  const ask = async (words: Parameters<typeof agentOf>[1]): Promise<boolean> => {
    await using agent = await agentOf(server, words);
    assert.deepEqual(agent.welcome.features, FEATURES);
    const target = { host: "kas.internal", port: 1 }; // not listed, so that nothing is dialled
    const stream = agent.session.open(encodeDestination({ target, timeoutMs: 1_000, id: "n/1" }));
    stream.on("error", () => {}).resume();
    await until(() => stream.destroyed || stream.acknowledged);
    return stream.acknowledged;
  };
  const features = [...FEATURES];
  assert.equal(await ask({ agentId: "node", instance: "1", features }), true);
  assert.equal(await ask({ agentId: "older", instance: "2" }), false);
  assert.equal(await ask({ agentId: "doctor", instance: "3", features, probe: true }), false);
});
