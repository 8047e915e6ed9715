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

test("agents that flood their tunnels with frames are cut, come back late, and hold up no other cluster", async (t) => {
  await using tenants = await startTwoTenants();
  const { red, agentPort: port, server } = tenants;
  const begun = performance.now();
  const floods = await Promise.all(
    Object.entries(KINDS).map(async ([kind, sentence]) => {
      const agentId = kind.replaceAll(" ", "-");
      // Each has an identity of its own: those who share one wait for each other's offences, too.
      const credential = { ca: red.ca, ...(await red.issueAgent(agentId)) };
      const flood = await startFlood("frames", { port, servername: red.sni, ...credential, agentId, kind });
      return { kind, sentence, agentId, flood };
    }),
  );
  try {
    for (const { kind, sentence, agentId } of floods) {
      const isEnd = (line: string) =>
        line.includes('"tunnel lost"') && line.includes(`"${agentId}"`) && sentence.test(line);
      await waitFor(() => server.log.some(isEnd), {
        deadlineMs: 20_000,
        what: `the end of the first tunnel with ${kind}`,
      });
    }
    t.diagnostic(await assertUnharmed(tenants, { windows: 14 }));
    for (const { kind, flood } of floods) {
      const { welcomed, refused, mebibytes } = await flood.stop();
      t.diagnostic(`${kind}: ${welcomed} tunnels, ${refused} refused, ${Math.round(Number(mebibytes))} MiB written`);
      // The penalty is 1 s and doubles: so many fit in; one more for a slow start.
      const most = 2 + Math.log2(1 + (performance.now() - begun) / 1_000);
      assert.ok(Number(welcomed) <= most, `${welcomed} tunnels with ${kind} were let in`);
      assert.ok(Number(refused) > 0, `${refused} with ${kind} were told to come back later`);
    }
  } finally {
    await Promise.all(floods.map(({ flood }) => flood[Symbol.asyncDispose]()));
  }
});

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
    agentId: "restless",
    kind: "nothing",
  });
  t.diagnostic(await assertUnharmed(tenants, { windows: 14 }));
  const { welcomed, refused } = await flood.stop();
  const seconds = (performance.now() - begun) / 1_000;
  t.diagnostic(`${welcomed} tunnels in ${Math.round(seconds)} s, ${refused} refused`);
  assert.ok(Number(welcomed) <= TUNNELS.burst + TUNNELS.perSecond * seconds + 1, `${welcomed} tunnels were let in`);
  assert.ok(Number(refused) > 10, `${refused} were told to come back later`);
});
