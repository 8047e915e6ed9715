import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { assertUnharmed } from "../harness/bystander.ts";
import { WHOLE_MATRICES } from "../harness/counts.ts";
import { startFlood } from "../harness/flood.ts";
import { startTwoTenants, type TwoTenants } from "../harness/two-tenants.ts";
import { waitFor } from "../harness/wait.ts";

/** The server's log line for each. */
const KINDS: Readonly<Record<string, RegExp>> = {
  "empty messages": /frames a second carry no payload/,
  "empty fragments": /frames a second carry no payload/,
  "single bytes": /frames a second carry no payload/,
  pings: /frames a second carry no payload/,
  pongs: /frames a second carry no payload/,
  "window updates for closed streams": /frames a second carry nothing/,
  "window updates of one byte": /frames a second carry nothing/,
  "data for closed streams": /more data came for streams that have ended than was under way/,
  "new streams": /the agent opens streams again and again/,
};

/** At each change one of each kind: a data frame, a control frame, and three that yamux reads. */
const USUAL = ["empty messages", "pings", "window updates of one byte", "data for closed streams", "new streams"];

/** Tunnels that `AgentPace` lets one agent begin. */
const TUNNELS = { burst: 20, perSecond: 1 };

describe("an agent that floods", () => {
  let tenants: TwoTenants;

  before(async () => {
    tenants = await startTwoTenants();
  });
  after(() => tenants?.[Symbol.asyncDispose]());

  /** Each has an identity of its own: those who share one wait for each other's offences, too. */
  async function flooder(kind: string) {
    const { red, agentPort: port } = tenants;
    const agentId = kind.replaceAll(" ", "-");
    const credential = { ca: red.ca, ...(await red.issueAgent(agentId)) };
    const begun = performance.now();
    const flood = await startFlood("frames", { port, servername: red.sni, ...credential, agentId, kind });
    return { agentId, flood, seconds: () => (performance.now() - begun) / 1_000 };
  }

  for (const [kind, sentence] of Object.entries(KINDS)) {
    if (!WHOLE_MATRICES && !USUAL.includes(kind)) continue;
    test(`its tunnel with ${kind} is cut, comes back late, and holds up no other cluster`, async (t) => {
      const { agentId, flood, seconds } = await flooder(kind);
      await using _flood = flood;
      const isEnd = (line: string) =>
        line.includes('"tunnel lost"') && line.includes(`"${agentId}"`) && sentence.test(line);
      await waitFor(() => tenants.server.log.some(isEnd), { deadlineMs: 20_000, what: "the end of the first tunnel" });
      t.diagnostic(await assertUnharmed(tenants, { windows: 14 }));
      const { welcomed, refused, mebibytes } = await flood.stop();
      t.diagnostic(`${welcomed} tunnels, ${refused} refused, ${Math.round(Number(mebibytes))} MiB written`);
      // The penalty is 1 s and doubles: this number fits in; one more for a slow start.
      assert.ok(Number(welcomed) <= 2 + Math.log2(1 + seconds()), `${welcomed} tunnels were let in`);
      assert.ok(Number(refused) > 3, `${refused} were told to come back later`);
    });
  }

  test("the server with tunnels that it begins, ends and begins again at once is paced", async (t) => {
    const { flood, seconds } = await flooder("nothing");
    await using _flood = flood;
    t.diagnostic(await assertUnharmed(tenants, { windows: 14 }));
    const { welcomed, refused } = await flood.stop();
    t.diagnostic(`${welcomed} tunnels in ${Math.round(seconds())} s, ${refused} refused`);
    assert.ok(Number(welcomed) <= TUNNELS.burst + TUNNELS.perSecond * seconds() + 1, `${welcomed} tunnels were let in`);
    assert.ok(Number(refused) > 10, `${refused} were told to come back later`);
  });
});
