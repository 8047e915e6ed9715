import assert from "node:assert/strict";
import { once } from "node:events";
import { type TestContext, test } from "node:test";
import { setImmediate } from "node:timers/promises";
import { createLogger } from "../shared/process/logger.ts";
import type { Stream } from "../shared/yamux/stream.ts";
import { type TrialDeps, tryTarget } from "./trial.ts";
import { Registry } from "./tunnels/registry.ts";
import { fakeAgent } from "./tunnels/testing.ts";

/** More than a target is given to close in its turn, ms. */
const LONG_AFTER_MS = 10_000;

/** A trial through an agent behind which the target does what `onTarget` says; no time passes but what the test lets pass. */
async function triedOn(t: TestContext, onTarget: (stream: Stream) => void) {
  t.mock.timers.enable({ apis: ["setTimeout"] });
  const agent = fakeAgent({ onTarget });
  t.after(() => agent.cut());
  const tunnels = new Registry();
  const cluster = tunnels.add("default", { serverId: "srv", maxAgents: 10, drainTimeoutMs: 100 });
  cluster.reserve(agent.tunnel.agent).hold(agent.tunnel);
  const deps: TrialDeps = {
    options: { connectTimeoutMs: 2_000, dialTimeoutMs: 1_000, agentAckTimeoutMs: 500, agentWaitMs: 50 },
    tunnels,
    log: createLogger({ level: "silent", format: "json", name: "test" }),
    mustAdmit: () => {},
    mustHaveFiles: () => {},
  };
  const { outcome } = await tryTarget({ cluster: "default", target: "10.0.0.1:10250" }, deps);
  assert.equal(outcome, "ok");
  const [atTarget] = agent.streams;
  assert.ok(atTarget);
  return { tunnel: agent.tunnel, atTarget };
}

async function until(condition: () => boolean): Promise<void> {
  const deadline = performance.now() + 5_000;
  while (!condition()) {
    assert.ok(performance.now() < deadline, `not within 5 s: ${condition}`);
    await setImmediate();
  }
}

test("a target that says more than a window before it closes is heard out, and nothing is reset", async (t) => {
  const { tunnel, atTarget } = await triedOn(t, (stream) => stream.resume().end(Buffer.alloc(1024 * 1024)));
  await until(() => tunnel.streamCount === 0 && atTarget.closed);
  assert.equal(atTarget.errored, null);
});

test("a target that never closes sees our end, and a moment later has no stream any more", async (t) => {
  const { tunnel, atTarget } = await triedOn(t, (stream) => stream.resume());
  await once(atTarget, "end");
  assert.equal(tunnel.streamCount, 1);
  t.mock.timers.tick(LONG_AFTER_MS);
  await until(() => tunnel.streamCount === 0);
});
