import assert from "node:assert/strict";
import { test } from "node:test";
import { assertUnharmed } from "../harness/bystander.ts";
import { startFlood } from "../harness/flood.ts";
import { startTwoTenants } from "../harness/two-tenants.ts";
import { waitFor } from "../harness/wait.ts";

/** What the server says of each in its log. */
const KINDS: Readonly<Record<string, RegExp>> = {
  "empty messages": /frames a second carry no payload/,
  "empty fragments": /frames a second carry no payload/,
  pings: /frames a second carry no payload/,
  pongs: /frames a second carry no payload/,
  "window updates for closed streams": /frames a second carry nothing/,
  "window updates of one byte": /frames a second carry nothing/,
  "data for closed streams": /more data came for streams that have ended than was under way/,
};

for (const [kind, sentence] of Object.entries(KINDS)) {
  test(`an agent that floods its tunnel with ${kind} is cut, comes back late, and holds up no other cluster`, async (t) => {
    await using tenants = await startTwoTenants();
    const { red, agentPort, server } = tenants;
    const credential = { ca: red.ca, ...(await red.agentPair) };
    const begun = performance.now();
    await using flood = await startFlood("frames", { port: agentPort, servername: red.sni, ...credential, kind });
    await waitFor(() => server.log.some((line) => line.includes('"tunnel lost"') && sentence.test(line)), {
      deadlineMs: 20_000,
      what: "the end of the first tunnel",
    });
    t.diagnostic(await assertUnharmed(tenants, { windows: 14 }));
    const { welcomed, refused, mebibytes } = await flood.stop();
    t.diagnostic(`${welcomed} tunnels, ${refused} refused, ${Math.round(Number(mebibytes))} MiB written`);
    // The penalty is 1 s and doubles: so many fit in; one more for a slow start.
    const most = 2 + Math.log2(1 + (performance.now() - begun) / 1_000);
    assert.ok(Number(welcomed) <= most, `${welcomed} tunnels were let in`);
    assert.ok(Number(refused) > 3, `${refused} were told to come back later`);
  });
}

/** What `AgentPace` lets one agent begin. */
const TUNNELS = { burst: 20, perSecond: 1 };

test("an agent that begins a tunnel, ends it and comes again at once is paced", async (t) => {
  await using tenants = await startTwoTenants();
  const { red, agentPort } = tenants;
  const credential = { ca: red.ca, ...(await red.agentPair) };
  const begun = performance.now();
  await using flood = await startFlood("frames", {
    port: agentPort,
    servername: red.sni,
    ...credential,
    kind: "nothing",
  });
  t.diagnostic(await assertUnharmed(tenants, { windows: 14 }));
  const { welcomed, refused } = await flood.stop();
  const seconds = (performance.now() - begun) / 1_000;
  t.diagnostic(`${welcomed} tunnels in ${Math.round(seconds)} s, ${refused} refused`);
  assert.ok(Number(welcomed) <= TUNNELS.burst + TUNNELS.perSecond * seconds + 1, `${welcomed} tunnels were let in`);
  assert.ok(Number(refused) > 10, `${refused} were told to come back later`);
});
