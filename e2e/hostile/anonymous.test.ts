import assert from "node:assert/strict";
import { test } from "node:test";
import { assertUnharmed } from "../harness/bystander.ts";
import { startAgentProcess } from "../harness/cluster-processes.ts";
import { startFlood } from "../harness/flood.ts";
import { startTwoTenants } from "../harness/two-tenants.ts";
import { waitFor } from "../harness/wait.ts";

const FLOODERS = Array.from({ length: 8 }, (_, index) => `127.0.66.${index + 1}`);
const FLOODS = { "never begin their inner TLS": { hello: true }, "never say hello": { hello: false } } as const;

for (const [what, { hello }] of Object.entries(FLOODS)) {
  test(`addresses whose carriers ${what} keep no agent of the cluster out`, async (t) => {
    await using tenants = await startTwoTenants({ server: { innerTls: "auto" } });
    const { red, agentPort } = tenants;
    await using flood = await startFlood("inner-hellos", {
      ...{ port: agentPort, servername: red.sni, localAddresses: FLOODERS, each: 50, hello },
    });
    await waitFor(() => Number(flood.counts["opened"]) > 500, { deadlineMs: 20_000, what: "a full room" });
    await using agent = await startAgentProcess(red, agentPort, { env: { CULVERT_AGENT_INNER_TLS: "always" } });
    const refused = agent.log.filter((line) => line.includes("uplink attempt failed"));
    assert.deepEqual(refused, [], "its first attempt succeeds");
    t.diagnostic(await assertUnharmed(tenants));
    const { upgraded } = await flood.stop();
    assert.ok(Number(upgraded) >= 256, `${upgraded} carriers of nobody`);
  });
}
