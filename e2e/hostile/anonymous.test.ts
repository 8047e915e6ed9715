import assert from "node:assert/strict";
import { test } from "node:test";
import { assertUnharmed, BESIDE_ANYBODY } from "../harness/bystander.ts";
import { startAgentProcess } from "../harness/cluster-processes.ts";
import { WHOLE_MATRICES } from "../harness/counts.ts";
import { startFlood } from "../harness/flood.ts";
import { startTwoTenants } from "../harness/two-tenants.ts";
import { waitFor } from "../harness/wait.ts";

const FLOODERS = Array.from({ length: 8 }, (_, index) => `127.0.66.${index + 1}`);
const FLOODS = {
  ...{ "never say hello": "upgrade", "never begin their inner TLS": "hello" },
  "never end their inner TLS": "ClientHello",
} as const;

/** At each change the first and the last stage at which a carrier can wait. */
const USUAL = ["never say hello", "never end their inner TLS"];

for (const [what, until] of Object.entries(FLOODS)) {
  if (!WHOLE_MATRICES && !USUAL.includes(what)) continue;
  test(`addresses whose carriers ${what} keep no agent of the cluster out`, async (t) => {
    await using tenants = await startTwoTenants({ server: { innerTls: "auto" } });
    const { red, agentPort } = tenants;
    await using flood = await startFlood("inner-hellos", {
      ...{ port: agentPort, servername: red.sni, localAddresses: FLOODERS, each: 50, until },
    });
    await waitFor(() => Number(flood.counts["opened"]) > 500, { deadlineMs: 20_000, what: "a full room" });
    await using agent = await startAgentProcess(red, agentPort, { env: { CULVERT_AGENT_INNER_TLS: "always" } });
    const refused = agent.log.filter((line) => line.includes("uplink attempt failed"));
    assert.deepEqual(refused, [], "its first attempt succeeds");
    t.diagnostic(await assertUnharmed(tenants, BESIDE_ANYBODY));
    const { upgraded } = await flood.stop();
    assert.ok(Number(upgraded) >= 256, `${upgraded} carriers of nobody`);
  });
}
