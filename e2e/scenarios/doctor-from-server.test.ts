import assert from "node:assert/strict";
import { once } from "node:events";
import { createServer } from "node:net";
import { test } from "node:test";
import type { ConnectCheck } from "../../server/operators/connect-check.ts";
import { freePort } from "../harness/targets/absent.ts";
import { within } from "../harness/wait.ts";
import { startWorld, type World } from "../harness/world.ts";

/** As `culvert doctor --from-server` asks. */
async function tried({ server }: Pick<World, "server">, asked: unknown): Promise<ConnectCheck> {
  const response = await fetch(`http://127.0.0.1:${server.addresses.admin?.port}/trial`, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify(asked),
  });
  return (await response.json()) as ConnectCheck;
}

const states = ({ steps }: ConnectCheck): string => steps.map(({ step, state }) => `${step} ${state}`).join(", ");

test("a target that is reached: the times of server, link, name server and dial are told apart", async (t) => {
  await using world = await startWorld();
  const target = createServer();
  const ended = new Promise<boolean>((resolve) => {
    target.on("connection", (socket) => {
      socket.on("error", () => resolve(false));
      socket.on("end", () => resolve(true)).resume();
    });
  });
  t.after(() => target.close());
  target.listen(0, "127.0.0.1");
  await once(target, "listening");
  const { port } = target.address() as { port: number };
  const trial = await tried(world, { cluster: "default", target: `localhost:${port}` });
  assert.equal(trial.outcome, "ok", JSON.stringify(trial));
  assert.equal(states(trial), "server passed, link passed, dns passed, dial passed");
  assert.match(trial.sentence, /is reached, through agent "agent-1"$/);
  assert.match(trial.steps[3]?.detail ?? "", new RegExp(`^127\\.0\\.0\\.1:${port}, from the agent$`));
  assert.equal(await within(ended, 5_000, "the end at the target"), true);
});

test("a target that cannot be reached is the dial's, a name that does not resolve the name server's", async () => {
  await using world = await startWorld();
  const refused = await tried(world, { cluster: "default", target: `127.0.0.1:${await freePort()}` });
  assert.equal(refused.outcome, "dial_refused");
  assert.equal(states(refused), "server passed, link passed, dns skipped, dial failed");
  assert.equal(refused.steps[2]?.detail, "127.0.0.1 is an address");
  const named = await tried(world, { cluster: "default", target: `localhost:${await freePort()}` });
  assert.equal(named.outcome, "dial_refused");
  assert.equal(states(named), "server passed, link passed, dns passed, dial failed");
  assert.equal(named.steps[2]?.detail, "at the agent; its time is in the dial's");
  const unknown = await tried(world, { cluster: "default", target: "no-such-host.invalid:443" });
  assert.equal(unknown.outcome, "dial_name");
  assert.equal(states(unknown), "server passed, link passed, dns failed, dial not reached");
});

test("without an agent, a cluster or a target it is the server that says no", async () => {
  await using world = await startWorld({ agents: 0, server: { agentWaitMs: 20 } });
  const asked: readonly (readonly [unknown, string])[] = [
    [{ cluster: "default", target: "10.0.0.1:10250" }, "no_agent"],
    [{ cluster: "nobody", target: "10.0.0.1:10250" }, "unknown_cluster"],
    [{ cluster: "default", target: "10.0.0.1" }, "bad_target"],
    [["what"], "bad_target"],
  ];
  for (const [question, outcome] of asked) {
    const trial = await tried(world, question);
    assert.equal(trial.outcome, outcome);
    assert.equal(states(trial), "server failed, link not reached, dns not reached, dial not reached");
  }
});
