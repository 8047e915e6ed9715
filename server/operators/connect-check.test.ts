import assert from "node:assert/strict";
import { once } from "node:events";
import { type TestContext, test } from "node:test";
import { setImmediate } from "node:timers/promises";
import { createLogger } from "../../shared/runtime/logger.ts";
import type { Stream } from "../../shared/yamux/stream.ts";
import { Registry } from "../tunnels/registry.ts";
import { type FakeAgent, fakeAgent } from "../tunnels/testing/fake-agent.ts";
import { type Trial, type TrialDeps, tryTarget } from "./connect-check.ts";

/** More than a target is given to close in its turn, ms. */
const LONG_AFTER_MS = 10_000;

/** A server with these agents, as far as a trial needs one. */
function serverOf(agents: readonly FakeAgent[], options: Partial<TrialDeps["options"]> = {}) {
  const tunnels = new Registry();
  const cluster = tunnels.add("default", { serverId: "srv", maxAgents: 10, drainTimeoutMs: 100 });
  const join = (agent: FakeAgent) => cluster.reserve(agent.tunnel.agent).hold(agent.tunnel);
  for (const agent of agents) join(agent);
  const times = { connectTimeoutMs: 10_000, dialTimeoutMs: 1_000, agentAckTimeoutMs: 5_000, agentWaitMs: 5_000 };
  const deps: TrialDeps = {
    options: { ...times, maxPendingConnects: 1, ...options },
    tunnels,
    metrics: { pendingOpens: () => {} },
    log: createLogger({ level: "silent", format: "json", name: "test" }),
    draining: () => false,
    mustAdmit: () => {},
    mustHaveFiles: () => {},
  };
  return { cluster, join, tried: (target = "10.0.0.1:10250") => tryTarget({ cluster: "default", target }, deps) };
}

/** A trial of a target that does what `onTarget` says; no time passes but what the test lets pass. */
async function triedOn(t: TestContext, onTarget: (stream: Stream) => void) {
  t.mock.timers.enable({ apis: ["setTimeout"] });
  const agent = fakeAgent({ onTarget });
  t.after(() => agent.cut());
  assert.equal((await serverOf([agent]).tried()).outcome, "ok");
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

/** What the trial says of the agents that it met. */
const picked = ({ steps }: Trial): string | undefined => steps.find(({ step }) => step === "server")?.detail;

test("a trial that meets the last moment of the only agent waits for the next one, as a CONNECT does", async (t) => {
  const first = fakeAgent({ agentId: "first", onStream: () => {} });
  const next = fakeAgent({ agentId: "next", onTarget: (stream) => stream.pipe(stream) });
  t.after(() => next.cut());
  const { join, tried } = serverOf([first]);
  const trial = tried();
  await until(() => first.streams.length === 1);
  first.cut();
  await until(() => first.tunnel.closed);
  join(next);
  const { outcome, sentence } = await trial;
  assert.equal(outcome, "ok");
  assert.match(sentence, /through agent "next"$/);
  assert.match(picked(await trial) ?? "", /^agent "next" .* is picked, as the connection to agent "first" was lost$/);
});

test("an agent that does not take the stream is told, and the one that takes it instead", async (t) => {
  const refuses = fakeAgent({ agentId: "refuses", onStream: (stream) => stream.reset() });
  const takes = fakeAgent({ agentId: "takes", onTarget: (stream) => stream.pipe(stream) });
  t.after(() => [refuses, takes].map((agent) => agent.cut()));
  const { tried } = serverOf([refuses, takes]);
  const trials = [await tried(), await tried()];
  assert.ok(refuses.streams.length > 0, "it was asked");
  for (const trial of trials) assert.match(trial.sentence, /through agent "takes"$/);
  const instead = /^agent "takes" .* is picked, as agent "refuses" takes no more connections: /;
  assert.equal(trials.filter((trial) => instead.test(picked(trial) ?? "")).length, refuses.streams.length);
});

test("an agent that has only lost its connection is waited for as long as by a CONNECT", async (t) => {
  t.mock.timers.enable({ apis: ["setTimeout"] });
  const agent = fakeAgent({ onTarget: (stream) => stream.pipe(stream) });
  t.after(() => agent.cut());
  const { cluster, tried } = serverOf([agent], { agentWaitMs: 100, connectTimeoutMs: 10_000 });
  agent.link.suspend();
  const trial = tried();
  t.mock.timers.tick(4_000);
  agent.link.resume();
  cluster.tunnelResumed();
  assert.equal((await trial).outcome, "ok");
});

test("where as many CONNECTs wait as may, a trial is one too many", async () => {
  const { cluster, tried } = serverOf([]);
  cluster.pendingConnects = 1;
  const { outcome, sentence } = await tried();
  assert.equal(outcome, "overloaded");
  assert.match(sentence, /^too many CONNECTs wait for an answer/);
});

test("an address needs no name server, whether the dial succeeds or not; a name has the agent's time", async (t) => {
  const times = { dnsMs: 0, dialMs: 1 };
  const agent = fakeAgent({
    answer: ({ target }) =>
      target.port === 1 ? { ok: false, error: "dial_refused", detail: "no" } : { ok: true, times },
  });
  t.after(() => agent.cut());
  const { tried } = serverOf([agent]);
  const dns = async (target: string) => (await tried(target)).steps.find(({ step }) => step === "dns");
  const skipped = { step: "dns", state: "skipped", detail: "10.0.0.1 is an address" };
  assert.deepEqual(await dns("10.0.0.1:10250"), skipped);
  assert.deepEqual(await dns("10.0.0.1:1"), skipped);
  assert.deepEqual(await dns("kubelet:10250"), { step: "dns", state: "passed", ms: 0, detail: "at the agent" });
});

test("the least round trip is never above what the link's own step took", async (t) => {
  const agent = fakeAgent();
  t.after(() => agent.cut());
  const { tried } = serverOf([agent]);
  for (const [pingMs, isLess] of [
    [60_000, false],
    [0, false],
    [0.000_1, true],
  ] as const) {
    Object.defineProperty(agent.tunnel, "rttMs", { value: pingMs, configurable: true });
    const { ms, detail } = (await tried()).steps.find(({ step }) => step === "link") ?? assert.fail();
    const told = isLess ? 0 : ms;
    assert.equal(/least round trip (.*) ms$/.exec(detail)?.[1], told?.toFixed(1), `ping ${pingMs} ms`);
  }
});
