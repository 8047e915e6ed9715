import assert from "node:assert/strict";
import { once } from "node:events";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import { pino } from "pino";
import { until } from "../../shared/basics/testing/wait.ts";
import { folderOf } from "../../shared/documents/testing/files.ts";
import type { Stream } from "../../shared/yamux/stream.ts";
import { AuditTrail } from "../audit/audit-trail.ts";
import type { ServerOptions } from "../options/options.ts";
import { contextWithCluster } from "../tunnels/testing/context.ts";
import { type FakeAgent, fakeAgent } from "../tunnels/testing/fake-agent.ts";
import { type ConnectCheck, checkConnect } from "./connect-check.ts";

/** More than a target is given to close in its turn, ms. */
const LONG_AFTER_MS = 10_000;

/** A server with these agents, as far as a connect check needs one. */
function serverOf(agents: readonly FakeAgent[], options: Partial<ServerOptions> = {}) {
  const times = { connectTimeoutMs: 10_000, dialTimeoutMs: 1_000, agentAckTimeoutMs: 5_000, agentWaitMs: 5_000 };
  const { context, cluster } = contextWithCluster({ ...times, maxPendingConnects: 1, ...options });
  const join = (agent: FakeAgent) => cluster.places.reserve(agent.tunnel.agent).join(agent.tunnel);
  for (const agent of agents) join(agent);
  return { cluster, join, check: (target = "10.0.0.1:10250") => checkConnect({ cluster: "default", target }, context) };
}

/** A connect check of a target that does what `onTarget` says; no time passes but what the test lets pass. */
async function checkOf(t: TestContext, onTarget: (stream: Stream) => void) {
  t.mock.timers.enable({ apis: ["setTimeout"] });
  const agent = fakeAgent({ onTarget });
  t.after(() => agent.cut());
  assert.equal((await serverOf([agent]).check()).outcome, "ok");
  const [atTarget] = agent.streams;
  assert.ok(atTarget);
  return { tunnel: agent.tunnel, atTarget };
}

test("a target that says more than a window before it closes is read to its end, and nothing is reset", async (t) => {
  const { tunnel, atTarget } = await checkOf(t, (stream) => stream.resume().end(Buffer.alloc(1024 * 1024)));
  await until(() => tunnel.streamCount === 0 && atTarget.closed);
  assert.equal(atTarget.errored, null);
});

test("a stream whose target never closes is ended, and a moment later destroyed", async (t) => {
  const { tunnel, atTarget } = await checkOf(t, (stream) => stream.resume());
  await once(atTarget, "end");
  assert.equal(tunnel.streamCount, 1);
  t.mock.timers.tick(LONG_AFTER_MS);
  await until(() => tunnel.streamCount === 0);
});

/** The detail of the step in which the agent is picked. */
const picked = ({ steps }: ConnectCheck): string | undefined => steps.find(({ step }) => step === "server")?.detail;

test("a connect check during which the only agent leaves waits for the next one, as a CONNECT does", async (t) => {
  const first = fakeAgent({ agentId: "first", onStream: () => {} });
  const next = fakeAgent({ agentId: "next", onTarget: (stream) => stream.pipe(stream) });
  t.after(() => next.cut());
  const { join, check } = serverOf([first]);
  const result = check();
  await until(() => first.streams.length === 1);
  first.cut();
  await until(() => first.tunnel.closed);
  join(next);
  const { outcome, sentence } = await result;
  assert.equal(outcome, "ok");
  assert.match(sentence, /through agent "next"$/);
  assert.match(picked(await result) ?? "", /^agent "next" .* is picked, as the connection to agent "first" was lost$/);
});

test("the check names the agent that did not take the stream, and the one that took it instead", async (t) => {
  const refuses = fakeAgent({ agentId: "refuses", onStream: (stream) => stream.reset() });
  const takes = fakeAgent({ agentId: "takes", onTarget: (stream) => stream.pipe(stream) });
  t.after(() => [refuses, takes].map((agent) => agent.cut()));
  const { check } = serverOf([refuses, takes]);
  const checks = [await check(), await check()];
  assert.ok(refuses.streams.length > 0, "it was asked");
  for (const result of checks) assert.match(result.sentence, /through agent "takes"$/);
  const instead = /^agent "takes" .* is picked, as agent "refuses" takes no more connections: /;
  assert.equal(checks.filter((result) => instead.test(picked(result) ?? "")).length, refuses.streams.length);
});

test("an agent that has only lost its connection is waited for as long as by a CONNECT", async (t) => {
  t.mock.timers.enable({ apis: ["setTimeout"] });
  const agent = fakeAgent({ onTarget: (stream) => stream.pipe(stream) });
  t.after(() => agent.cut());
  const { cluster, check } = serverOf([agent], { agentWaitMs: 100, connectTimeoutMs: 10_000 });
  agent.link.suspend();
  const result = check();
  t.mock.timers.tick(4_000);
  agent.link.resume();
  cluster.tunnelAvailable();
  assert.equal((await result).outcome, "ok");
});

test("a connect check counts as one of the CONNECTs that may wait", async () => {
  const { cluster, check } = serverOf([]);
  cluster.pendingConnects = 1;
  const { outcome, sentence } = await check();
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
  const { check } = serverOf([agent]);
  const dns = async (target: string) => (await check(target)).steps.find(({ step }) => step === "dns");
  const skipped = { step: "dns", state: "skipped", detail: "10.0.0.1 is an address" };
  assert.deepEqual(await dns("10.0.0.1:10250"), skipped);
  assert.deepEqual(await dns("10.0.0.1:1"), skipped);
  assert.deepEqual(await dns("kubelet:10250"), { step: "dns", state: "passed", ms: 0, detail: "at the agent" });
});

test("the least round trip is never above what the link's own step took", async (t) => {
  const agent = fakeAgent();
  t.after(() => agent.cut());
  const { check } = serverOf([agent]);
  for (const [pingMs, isLess] of [
    [60_000, false],
    [0, false],
    [0.000_1, true],
  ] as const) {
    Object.defineProperty(agent.tunnel, "rttMs", { value: pingMs, configurable: true });
    const { ms, detail } = (await check()).steps.find(({ step }) => step === "link") ?? assert.fail();
    const told = isLess ? 0 : ms;
    assert.equal(/least round trip (.*) ms$/.exec(detail)?.[1], told?.toFixed(1), `ping ${pingMs} ms`);
  }
});

test("a check is in the audit trail, whether its target was reached or not", async (t) => {
  const file = join(folderOf(t), "audit.log");
  const trail = new AuditTrail(file, {
    serverId: "a",
    required: true,
    log: pino({ level: "silent" }),
    lost: { add() {} },
  });
  const agent = fakeAgent({ onTarget: (stream) => stream.resume().end() });
  t.after(() => agent.cut());
  const { context, cluster } = contextWithCluster({ connectTimeoutMs: 10_000, maxPendingConnects: 1 });
  cluster.places.reserve(agent.tunnel.agent).join(agent.tunnel);
  const asked = (target: string) => checkConnect({ cluster: "default", target }, { ...context, audit: () => trail });
  await asked("10.0.0.1:10250");
  await asked("no target");
  await trail.close();
  const lines = readFileSync(file, "utf8")
    .trim()
    .split("\n")
    .map((line) => JSON.parse(line));
  const shown = lines.map(({ event, decision, target, connection }) => [event, decision, target, connection]);
  assert.deepEqual(shown, [
    ["decision", "allowed", "10.0.0.1:10250", "doctor"],
    ["end", undefined, "10.0.0.1:10250", undefined],
    ["decision", "refused", "no target", "doctor"],
  ]);
});
