import assert from "node:assert/strict";
import type { Duplex } from "node:stream";
import { test } from "node:test";
import { until } from "../../shared/basics/testing/wait.ts";
import { CulvertError } from "../../shared/outcomes.ts";
import type { VerificationResult } from "../tokens/verifier.ts";
import { fakeAgent } from "../tunnels/testing/fake-agent.ts";
import { CONNECT, ESTABLISHED, start } from "./testing/caller.ts";

test("an agent that does not take the stream is replaced by another one, once", async () => {
  const deaf = fakeAgent({ agentId: "deaf", onStream: () => {} });
  const well = fakeAgent({ agentId: "well", onTarget: (stream) => stream.pipe(stream) });
  await using world = await start([deaf, well], { agentAckTimeoutMs: 500, connectTimeoutMs: 10_000 });
  for (let calls = 1; calls <= 2; calls++) assert.equal(await world.call().ask(CONNECT), ESTABLISHED);
  assert.ok(deaf.streams.length > 0, "the deaf one was tried");

  const deaf2 = fakeAgent({ agentId: "deaf2", onStream: () => {} });
  const deaf3 = fakeAgent({ agentId: "deaf3", onStream: () => {} });
  await using quiet = await start([deaf, deaf2, deaf3], { agentAckTimeoutMs: 30 });
  assert.match(await quiet.call().ask(CONNECT), /^HTTP\/1\.1 504 agent "\w+" does not respond: .*\r\n/);
});

test("a tunnel that carries all it may is passed over for another one", async () => {
  const onTarget = (stream: Duplex) => void stream.pipe(stream);
  const full = fakeAgent({ agentId: "full", onTarget, bounds: { maxStreams: 1 } });
  await using world = await start([full, fakeAgent({ agentId: "roomy", onTarget })]);
  for (let caller = 1; caller <= 4; caller++) assert.equal(await world.call().ask(CONNECT), ESTABLISHED);
  assert.equal(full.streams.length, 1);
});

test("a CONNECT that waits for a lost agent takes the first that comes, long before its own deadline", async () => {
  // Only a deadline of minutes is left to whoever does not look at the newcomer.
  const lost = fakeAgent({ agentId: "lost", onStream: (stream) => stream.accept() });
  const newcomer = fakeAgent({ agentId: "newcomer", onTarget: (stream) => stream.pipe(stream) });
  await using world = await start([lost], { agentAckTimeoutMs: 600_000, connectTimeoutMs: 600_000 });
  const caller = world.call();
  caller.socket.write(CONNECT);
  await until(() => lost.streams.length === 1);
  lost.link.suspend();
  world.join(newcomer);
  await until(() => caller.text === ESTABLISHED);
  await until(() => lost.streams[0]?.destroyed === true);
  assert.equal(newcomer.streams.length, 1);
  newcomer.cut();
});

const PATIENT = { agentWaitMs: 5_000, agentAckTimeoutMs: 5_000, connectTimeoutMs: 10_000 };

test("a CONNECT that meets the last moment of an agent waits for the one that comes after it", async () => {
  for (const end of ["closes", "refuses", "cut"]) {
    const first = fakeAgent({
      agentId: "first",
      onStream: (stream) => {
        if (end !== "refuses") return;
        first.session.drain();
        stream.reset();
      },
    });
    const next = fakeAgent({ agentId: "next", onTarget: (stream) => stream.pipe(stream) });
    await using world = await start([first], PATIENT);
    const caller = world.call();
    caller.socket.write(CONNECT);
    await until(() => first.streams.length === 1);
    if (end === "closes") void first.session.close(0);
    if (end === "cut") first.cut();
    await until(() => (end === "refuses" ? first.tunnel.streamCount === 0 : first.tunnel.closed));
    world.join(next);
    await until(() => caller.text === ESTABLISHED);
    next.cut();
  }
});

test("an agent that is there, or one that may not come back, is not waited for", async () => {
  const options = { ...PATIENT, agentWaitMs: 60_000, connectTimeoutMs: 120_000, draining: false };
  const full = fakeAgent({ onStream: (stream) => stream.reset() });
  await using busy = await start([full], options);
  assert.match(await busy.call().ask(CONNECT), /^HTTP\/1\.1 503 agent "a" takes no more connections/);
  for (const why of ["draining", "closed"]) {
    const agent = fakeAgent({ onStream: () => {} });
    const ending = { ...options };
    await using world = await start([agent], ending);
    const caller = world.call();
    caller.socket.write(CONNECT);
    await until(() => agent.streams.length === 1);
    if (why === "draining") ending.draining = true;
    else world.cluster.closedBecause = "the cluster is suspended";
    agent.cut();
    await until(() => /^HTTP\/1\.1 502 the connection to agent "a" was lost\r\n/.test(caller.text));
  }
});

test("who waits for the agent after the next is not answered later than --connect-timeout", async () => {
  const agent = fakeAgent({ onStream: () => {} });
  await using world = await start([agent], { ...PATIENT, agentWaitMs: 60_000, connectTimeoutMs: 300 });
  const caller = world.call();
  caller.socket.write(CONNECT);
  await until(() => agent.streams.length === 1);
  agent.cut();
  await until(() => caller.text.startsWith("HTTP/1.1 502 "));
  assert.equal(world.cluster.pendingConnects, 0);
});

test("where nobody comes after an agent that was lost, the CONNECT learns of the lost one; and a caller need not wait", async () => {
  for (const leaves of [false, true]) {
    const agent = fakeAgent({ onStream: () => {} });
    await using world = await start([agent], { agentWaitMs: leaves ? 60_000 : 60, connectTimeoutMs: 120_000 });
    const caller = world.call();
    caller.socket.write(CONNECT);
    await until(() => agent.streams.length === 1);
    agent.cut();
    await until(() => agent.tunnel.closed);
    if (leaves) caller.socket.resetAndDestroy();
    else await until(() => /^HTTP\/1\.1 502 the connection to agent "a" was lost\r\n/.test(caller.text));
    await until(() => world.lines.length === 1);
    assert.equal(world.lines[0]?.outcome, leaves ? "caller_gone" : "agent_lost");
  }
});

test("a dial that failed is not tried again", async () => {
  const refuse = () => ({ ok: false, error: "dial_refused", detail: "10.0.0.1:10250 refused" }) as const;
  const agents = ["a", "b"].map((agentId) => fakeAgent({ agentId, answer: refuse }));
  await using world = await start(agents);
  assert.match(await world.call().ask(CONNECT), /^HTTP\/1\.1 502 10\.0\.0\.1:10250 refused\r\n/);
  assert.equal(
    agents.reduce((sum, agent) => sum + agent.streams.length, 0),
    1,
  );
});

test("more CONNECTs than may wait hear 503 at once, unless something else is wrong with them", async () => {
  const agent = fakeAgent({ answer: () => new Promise(() => {}) });
  await using world = await start([agent], { maxPendingConnects: 1 });
  world.call().socket.write(CONNECT);
  await until(() => world.cluster.pendingConnects === 1);
  assert.match(
    await world.call().ask(CONNECT),
    /^HTTP\/1\.1 503 too many CONNECTs wait for an answer \(1, --max-pending-connects\): try again\r\n/,
  );
  assert.match(await world.call().ask("CONNECT nowhere HTTP/1.1\r\n\r\n"), /^HTTP\/1\.1 400 /);
});

const withToken = (header: string) => `CONNECT 10.0.0.1:443 HTTP/1.1\r\nProxy-Authorization: ${header}\r\n\r\n`;

test("CONNECTs whose tokens are being verified take no room of those that wait for an agent, and displace their own", async () => {
  const verifier = { verify: () => new Promise<never>(() => {}), close: () => {} };
  await using world = await start([], { verifier, maxTokenVerifications: 1, maxPendingConnects: 1 });
  const { callers } = world.cluster.verifying;
  const oldest = world.call().ask(withToken("Bearer a.b.c"));
  await until(() => callers.size === 1);
  world.call().socket.write(withToken("Bearer d.e.f"));
  assert.match(
    await oldest,
    /^HTTP\/1\.1 503 too many tokens of callers .* \(--max-token-verifications\): the oldest was dropped/,
  );
  assert.deepEqual([callers.size, world.cluster.pendingConnects], [1, 0]);
});

test("what comes while a token is verified counts for unauthenticated peers, and for the cluster once its caller is admitted", async () => {
  let decide: (verdict: VerificationResult) => void = () => {};
  const verifier = { verify: () => new Promise<VerificationResult>((resolve) => (decide = resolve)), close: () => {} };
  await using world = await start([], { verifier, agentWaitMs: 1_000 });
  const { cluster, unauthenticatedMemory } = world;
  const held = () => [unauthenticatedMemory.held, cluster.memory.held];
  const caller = world.call();
  const answer = caller.ask(withToken("Bearer a.b.c") + "x".repeat(10_000));
  await until(() => held().includes(10_000));
  assert.deepEqual(held(), [10_000, 0], "an unauthenticated peer has sent it");
  decide({ ok: { subject: "me" } } as VerificationResult);
  await until(() => cluster.pendingConnects === 1);
  assert.deepEqual(held(), [0, 10_000]);
  assert.match(await answer, /^HTTP\/1\.1 503 no agent of cluster/);
  await until(() => cluster.memory.held === 0);
});

test("a listener that takes tokens asks for one, in both ways that it reads", async () => {
  const verifier = { verify: async () => ({ refused: "the token is none" }), close: () => {} };
  await using world = await start([], { verifier });
  const asks =
    /^HTTP\/1\.1 407 .*\r\nProxy-Authenticate: Bearer realm="culvert"\r\nProxy-Authenticate: Basic realm="culvert"\r\n/;
  assert.match(await world.call().ask(withToken("Bearer a.b.c")), asks);
});

test("a good token opens nothing from an address that is not permitted", async () => {
  const verify = async () => ({ ok: { subject: "me", expiresAt: new Date() } });
  const objection = new CulvertError("forbidden", "not open to you");
  const agent = fakeAgent();
  await using world = await start([agent], { verifier: { verify, close: () => {} }, objection });
  assert.match(await world.call().ask(withToken("Bearer a.b.c")), /^HTTP\/1\.1 403 not open to you\r\n/);
  assert.equal(agent.streams.length, 0);
});

test("a server that drains, or has hardly a file descriptor left, answers new CONNECTs with 503", async () => {
  for (const [options, code, answer] of [
    [{ draining: true }, "draining", /^HTTP\/1\.1 503 this server is shutting down/],
    [{ filesUsedUp: true }, "overloaded", /^HTTP\/1\.1 503 no files/],
  ] as const) {
    await using world = await start([fakeAgent()], options);
    assert.match(await world.call().ask(CONNECT), answer);
    await until(() => world.lines.some(({ outcome }) => outcome === code));
  }
});

test("the log says what was asked for, also where it is no target", async () => {
  await using world = await start([fakeAgent()]);
  for (const asked of ["example.com:0", "example.com", `${"x".repeat(300)}:1`]) {
    assert.match(await world.call().ask(`CONNECT ${asked} HTTP/1.1\r\n\r\n`), /^HTTP\/1\.1 400 /);
    const shown = asked.length > 200 ? `${asked.slice(0, 197)}...` : asked;
    await until(() => world.lines.some(({ outcome, target }) => outcome === "bad_target" && target === shown));
  }
});

test("neither log nor answer repeats what may be a secret in what was asked for", async () => {
  await using world = await start([fakeAgent()]);
  for (const asked of ["bob:hunter2@example.com:443", "http://bob:hunter2@example.com/?key=hunter2"]) {
    assert.doesNotMatch(await world.call().ask(`CONNECT ${asked} HTTP/1.1\r\n\r\n`), /hunter2/);
    await until(() => world.lines.some(({ target = "" }) => target.startsWith("...@example.com")));
    assert.ok(!JSON.stringify(world.lines.splice(0)).includes("hunter2"));
  }
});

test("refusals without end are ten lines for each outcome, and the line of each CONNECT that is served stays", async () => {
  const agent = fakeAgent({ agentId: "a", onTarget: (stream) => stream.end() });
  await using world = await start([agent]);
  for (let calls = 0; calls < 15; calls++) {
    assert.match(await world.call().ask(`CONNECT no-port-${calls} HTTP/1.1\r\n\r\n`), /^HTTP\/1\.1 400 /);
    const served = world.call();
    await served.ask(CONNECT);
    served.socket.end();
  }
  const written = (msg: string) => world.lines.filter((line) => line.msg === msg && line.level !== "debug");
  await until(() => written("connection closed").length === 15);
  assert.equal(written("CONNECT failed").length, 10);
});
