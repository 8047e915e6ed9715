import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import type { PlayedAgent } from "../../server/testing/played-agent.ts";
import { parseIdentifiers } from "../../shared/address/agent-identifiers.ts";
import { captureLog } from "../harness/log-lines.ts";
import { scriptedAgent } from "../harness/scripted-agent.ts";
import { waitFor } from "../harness/wait.ts";
import { startWorld, type World } from "../harness/world.ts";

const CLAIMED = "172.30.1.5:443";
const { log, lines } = captureLog();
let world: World<"echo">;

before(async () => {
  world = await startWorld({
    agents: 0,
    targets: ["echo"],
    server: { proxyStrategies: ["destHost", "defaultRoute"] },
    log,
  });
});
after(() => world[Symbol.asyncDispose]());

/** Agents that a script plays, by their identifiers in Konnectivity's form. */
async function agents(identifiers: Readonly<Record<string, string>>): Promise<Map<string, PlayedAgent>> {
  const started = new Map<string, PlayedAgent>();
  for (const [agentId, query] of Object.entries(identifiers)) {
    started.set(agentId, await scriptedAgent(world, { agentId, identifiers: parseIdentifiers([query]) }));
  }
  return started;
}

async function leave(agent: PlayedAgent | undefined): Promise<void> {
  await agent?.[Symbol.asyncDispose]();
  await waitFor(() =>
    [...world.server.tunnels.tunnels()].every((tunnel) => !tunnel.closed && tunnel.id !== agent?.link.id),
  );
}

async function statusOf(target: string): Promise<number> {
  await using connection = await world.connect(target);
  return connection.status;
}

function counts(started: ReadonlyMap<string, PlayedAgent>): Record<string, number> {
  return Object.fromEntries([...started].map(([agentId, { streams }]) => [agentId, streams.length]));
}

test("an address goes to the agent that names it alone, all else to that of the default route", async () => {
  const started = await agents({ a: "ipv4=172.30.1.5", b: "default-route=true", c: "" });
  for (const target of [CLAIMED, "[::ffff:172.30.1.5]:443", "172.30.1.6:443", "web.default.svc:80", "[fd00::1]:443"]) {
    assert.equal(await statusOf(target), 200, target);
  }
  assert.deepEqual(counts(started), { a: 2, b: 3, c: 0 });
  await waitFor(() => lines.filter(({ msg }) => msg === "connection closed").length === 5);
  const chosen = lines.flatMap(({ msg, strategy, agent }) =>
    msg === "connection closed" ? `${strategy} ${agent}` : [],
  );
  assert.deepEqual(chosen.sort(), ["defaultRoute b", "defaultRoute b", "defaultRoute b", "destHost a", "destHost a"]);

  await leave(started.get("a"));
  assert.equal(await statusOf(CLAIMED), 200);
  assert.deepEqual(counts(started), { a: 2, b: 4, c: 0 });
  const passedOver = lines.find(({ msg }) => msg === "no agent that claims the target is there: another was asked");
  assert.deepEqual(
    [
      passedOver?.level,
      passedOver?.["target"],
      passedOver?.["claimedBy"],
      passedOver?.["agent"],
      passedOver?.["strategy"],
    ],
    ["warn", CLAIMED, "a", "b", "defaultRoute"],
  );
  for (const agent of started.values()) await leave(agent);
});

test("agents say their identifiers by option; with strict ones a claimed address without its agent gets 503 with a sentence", async () => {
  await using strict = await startWorld({
    agents: 0,
    targets: ["echo"],
    server: { proxyStrategies: ["destHost", "cidr", "defaultRoute"], strictIdentifiers: true, agentWaitMs: 0 },
  });
  const local = await strict.startAgent({ agentIdentifiers: ["cidr=127.0.0.0/8"] });
  const other = await strict.startAgent({ agentIdentifiers: ["default-route=true"] });
  const port = strict.targets.echo.address.split(":").at(-1);
  const [byAddress, byName] = [await strict.connect("echo"), await strict.connect(`localhost:${port}`)];
  assert.deepEqual([byAddress.status, byName.status], [200, 200]);
  assert.deepEqual([local.streamCount, other.streamCount], [1, 1]);
  for (const connection of [byAddress, byName]) await connection[Symbol.asyncDispose]();
  await local.close();
  await waitFor(() => [...strict.server.tunnels.tunnels()].length === 1);
  await using refused = await strict.connect("echo");
  assert.equal(refused.status, 503);
  assert.match(
    refused.reason,
    /^127\.0\.0\.1 is for its own agents alone \(strict identifiers\), and agent "agent-1", which claims it, is not connected/,
  );
});
