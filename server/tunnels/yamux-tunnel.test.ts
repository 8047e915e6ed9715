import assert from "node:assert/strict";
import { once } from "node:events";
import { test } from "node:test";
import { Cancellation } from "../../shared/basics/promises.ts";
import { until } from "../../shared/basics/testing/wait.ts";
import { CulvertError } from "../../shared/outcomes.ts";
import { encodeAnswer, type OpenRequest } from "../../shared/wire/stream-head.ts";
import { DialRecord, Opening } from "./opening.ts";
import { type FakeAgent, type FakeAgentOptions, fakeAgent, openOptions } from "./testing/fake-agent.ts";

const TARGET = { host: "10.0.0.1", port: 10250 };
const OPTIONS = openOptions();

function using(options: FakeAgentOptions = {}): FakeAgent & Disposable {
  const agent = fakeAgent(options);
  return Object.assign(agent, { [Symbol.dispose]: () => agent.cut() });
}

test("an opened stream carries bytes both ways behind the heads", async () => {
  using agent = using({ onTarget: (stream) => stream.pipe(stream) });
  const stream = await agent.tunnel.open(TARGET, OPTIONS);
  stream.write("hello");
  const [echo] = await once(stream, "data");
  assert.equal(String(echo), "hello");
  assert.equal(agent.tunnel.streamCount, 1);
});

test("the agent is asked for the target, and for a dial that ends before we give up", async (t) => {
  t.mock.method(performance, "now", () => 1_000);
  let seen: OpenRequest | undefined;
  using agent = using({
    answer: (request) => {
      seen = request;
      return { ok: true };
    },
  });
  await agent.tunnel.open(TARGET, { ...OPTIONS, id: "z9", deadline: 1_600 });
  assert.deepEqual(seen, { kind: "connect", target: TARGET, timeoutMs: 500, id: "z9" });
});

test("what the agent refuses arrives with its code and its words", async () => {
  using agent = using({ answer: () => ({ ok: false, error: "dial_refused", detail: "10.0.0.1:10250 refused" }) });
  await assert.rejects(agent.tunnel.open(TARGET, OPTIONS), {
    code: "dial_refused",
    retryable: false,
    message: /^10\.0\.0\.1:10250 refused$/,
  });
  assert.equal(agent.tunnel.streamCount, 0);
});

test("an agent that does not take the stream is passed over", async () => {
  using agent = using({ onStream: () => {} });
  const opening = agent.tunnel.open(TARGET, { ...OPTIONS, ackTimeoutMs: 20 });
  await assert.rejects(opening, { code: "agent_timeout", retryable: true, message: /agent "a" does not respond/ });
  assert.equal(agent.tunnel.streamCount, 0);
  assert.ok(agent.link.probes > 0, "and it is asked for a sign of life");
});

test("an agent whose bytes still come, or that alone could take the stream, is waited for longer", async () => {
  using agent = using({ onStream: () => {} });
  const took = async (more: Partial<typeof OPTIONS>) => {
    const started = performance.now();
    const opening = agent.tunnel.open(TARGET, { ...OPTIONS, ackTimeoutMs: 100, ...more });
    await assert.rejects(opening, { code: "agent_timeout", retryable: true });
    return performance.now() - started;
  };
  assert.ok((await took({ hasAlternative: () => false })) >= 145, "half the time more, where there is no other agent");
  const bulk = setInterval(() => Object.assign(agent.link, { lastByteAt: performance.now() }), 5);
  const end = setTimeout(() => clearInterval(bulk), 300);
  assert.ok((await took({ hasAlternative: () => true })) >= 350, "the time begins with the last byte");
  clearTimeout(end);
});

test("a CONNECT that was cancelled before its turn opens no stream", async () => {
  using agent = using({ onTarget: (stream) => stream.pipe(stream) });
  const cancellation = new Cancellation<CulvertError>();
  cancellation.cancel(new CulvertError("caller_gone", "the caller left"));
  await assert.rejects(agent.tunnel.open(TARGET, { ...OPTIONS, cancellation }), { code: "caller_gone" });
  assert.equal(agent.tunnel.streamCount, 0);
});

test("what was opened, or not, hears no more of its link", async (t) => {
  using agent = using({ onTarget: (stream) => stream.pipe(stream) });
  const suspended = t.mock.method(Opening.prototype, "onSuspended");
  await agent.tunnel.open(TARGET, OPTIONS);
  agent.link.suspend();
  assert.equal(suspended.mock.callCount(), 0);
});

test("the wait for another agent ends with each new one, and with the answer of the agent that was asked", async () => {
  const waits: Cancellation<Error>[] = [];
  let answer: (() => void) | undefined;
  using agent = using({ answer: () => new Promise((resolve) => (answer = () => resolve({ ok: true }))) });
  const whenAvailable = (cancellation: Cancellation<Error>): Promise<never> => {
    waits.push(cancellation);
    return new Promise(() => {});
  };
  const opening = agent.tunnel.open(TARGET, { ...OPTIONS, whenAvailable });
  await until(() => answer !== undefined);
  for (let lost = 0; lost < 2; lost++) {
    agent.link.suspend();
    agent.link.resume();
  }
  const areOver = () => waits.map(({ reason }) => reason !== undefined);
  assert.deepEqual(areOver(), [true, false]);
  answer?.();
  await opening;
  assert.deepEqual(areOver(), [true, true]);
});

test("an agent that takes the stream and never answers is not tried elsewhere", async () => {
  using agent = using({ onStream: (stream) => stream.accept() });
  const started = performance.now();
  const opening = agent.tunnel.open(TARGET, { ...OPTIONS, ackTimeoutMs: 200, deadline: started + 500 });
  await assert.rejects(opening, { code: "agent_timeout", retryable: false, message: /did not answer in time/ });
  assert.ok(performance.now() - started >= 450, "the acknowledged stream got its whole time");
});

test("a caller that leaves resets the stream at the agent", async () => {
  using agent = using({ onStream: (stream) => stream.accept() });
  const caller = new Cancellation<CulvertError>();
  const opening = agent.tunnel.open(TARGET, { ...OPTIONS, cancellation: caller });
  await until(() => agent.streams.length === 1);
  caller.cancel(new CulvertError("caller_gone", "gone"));
  await assert.rejects(opening, { code: "caller_gone" });
  await until(() => agent.streams[0]?.destroyed === true);
  assert.equal(agent.tunnel.pendingOpens, 0);
});

test("an answer after the end of the wait is nobody's", async () => {
  using agent = using({ onStream: (stream) => stream.accept() });
  const opening = agent.tunnel.open(TARGET, { ...OPTIONS, deadline: performance.now() + 20 });
  await assert.rejects(opening, { code: "agent_timeout" });
  agent.streams[0]?.write(encodeAnswer({ ok: true }));
  await agent.tunnel.open(TARGET, { ...OPTIONS, deadline: performance.now() + 5 }).catch(() => {});
  assert.equal(agent.tunnel.closed, false);
});

test("losing the session during the dial is agent_lost, and another agent may be tried", async () => {
  using agent = using({ onStream: (stream) => stream.accept() });
  const opening = agent.tunnel.open(TARGET, OPTIONS);
  await until(() => agent.streams.length === 1);
  agent.cut();
  await assert.rejects(opening, { code: "agent_lost", retryable: true, message: /connection to agent "a" was lost/ });
  await assert.rejects(agent.tunnel.open(TARGET, OPTIONS), { code: "agent_lost", retryable: true });
});

test("a reset in place of the ACK says that the agent takes no more", async () => {
  using agent = using({ onStream: (stream) => stream.reset() });
  await assert.rejects(agent.tunnel.open(TARGET, OPTIONS), { code: "agent_exhausted", retryable: true });
});

test("a reset behind the ACK is an agent that broke off", async () => {
  using agent = using({
    onStream: (stream) => {
      stream.accept();
      setImmediate(() => stream.reset());
    },
  });
  await assert.rejects(agent.tunnel.open(TARGET, OPTIONS), { code: "agent_lost", message: /broke off/ });
});

test("a malformed answer is internal, and costs the stream only", async () => {
  using agent = using({
    onStream: (stream) => {
      stream.accept();
      stream.write(Buffer.from([0, 3, 0x7b, 0x7b, 0x7b]));
    },
  });
  await assert.rejects(agent.tunnel.open(TARGET, OPTIONS), { code: "internal" });
  assert.equal(agent.tunnel.closed, false);
  assert.equal(agent.tunnel.streamCount, 0);
});

test("an agent that said go-away, or asked to drain, takes nothing new", async () => {
  using leaving = using();
  leaving.session.drain();
  await until(() => leaving.tunnel.draining);
  await assert.rejects(leaving.tunnel.open(TARGET, OPTIONS), { code: "draining", retryable: true });

  using asking = using();
  asking.say({ type: "drain", retryAfterMs: 0 });
  assert.equal(asking.tunnel.draining, true);
});

test("draining tells the agent when to come back, and keeps what is open", async () => {
  using agent = using({ onTarget: (stream) => stream.pipe(stream) });
  const stream = await agent.tunnel.open(TARGET, OPTIONS);
  agent.tunnel.drain(5_000);
  assert.deepEqual(agent.control, [{ type: "drain", retryAfterMs: 5_000 }]);
  stream.write("still here");
  const [echo] = await once(stream, "data");
  assert.equal(String(echo), "still here");
  assert.equal(agent.tunnel.draining, true);
});

test("a tunnel says once that it is over, with the reason", async () => {
  using agent = using();
  agent.tunnel.destroy(new Error("enough"));
  assert.equal((await agent.tunnel.closedWith)?.message, "enough");
});

test("a link that is suspended during the dial: another agent is asked at once, or this one waited for", async () => {
  let another = true;
  using agent = using({ onStream: (stream) => stream.accept() });
  const { tunnel, link } = agent;
  const asking = tunnel.open(TARGET, { ...OPTIONS, hasAlternative: () => another });
  const patient = () =>
    tunnel.open(TARGET, {
      ...OPTIONS,
      deadline: performance.now() + 60,
      ackTimeoutMs: 1,
      hasAlternative: () => another,
    });
  link.suspend();
  await assert.rejects(asking, { code: "agent_lost", message: /^the connection to agent "a" was lost$/ });
  another = false;
  const since = performance.now();
  const waiting = patient();
  await assert.rejects(waiting, { code: "agent_lost", message: /^the connection to agent "a" was lost$/ });
  assert.ok(performance.now() - since >= 55, "not before its deadline");
});

const CHANGED = "the trust of its cluster has changed";
const asked = ({ control }: FakeAgent) => control.filter(({ type }) => type === "rotate").length;

test("an agent that proves itself in time keeps its tunnel, and one that does not loses it", async () => {
  using honest = using();
  using revoked = using();
  for (const { tunnel } of [honest, revoked]) tunnel.requireProof(CHANGED, 30);
  honest.tunnel.onProof();
  await until(() => revoked.tunnel.closed);
  assert.match((await revoked.tunnel.closedWith)?.message ?? "", /trust .* has changed, .* not come back to prove/);
  assert.deepEqual([honest.tunnel.closed, asked(honest)], [false, 1]);
});

test("nothing waits for the proof of a tunnel that is over", (t) => {
  t.mock.timers.enable({ apis: ["setTimeout"] });
  using present = using();
  using over = using();
  for (const { tunnel } of [present, over]) tunnel.requireProof(CHANGED, 60_000);
  over.tunnel.destroy(new Error("the test ends it"));
  const ends = [present, over].map(({ tunnel }) => t.mock.method(tunnel, "destroy"));
  t.mock.timers.tick(60_000);
  assert.deepEqual(
    ends.map(({ mock }) => mock.callCount()),
    [1, 0],
  );
});

test("another change of trust gives nobody more time", async () => {
  using agent = using();
  agent.tunnel.requireProof(CHANGED, 30);
  agent.tunnel.requireProof(CHANGED, 60_000);
  await until(() => agent.tunnel.closed);
  assert.equal(asked(agent), 2);
});

test("without a carrier a tunnel is waited for only if its next carrier proves who comes", async () => {
  using outer = using();
  using inner = using({ innerTls: true });
  for (const { tunnel, link } of [outer, inner]) {
    link.suspend();
    tunnel.requireProof(CHANGED, 30);
  }
  await until(() => inner.tunnel.closed);
  assert.equal(outer.tunnel.closed, false);
});

test("who has come back without a proof is asked once more, and has no more time for it", async () => {
  using agent = using({ innerTls: true });
  agent.tunnel.requireProof(CHANGED, 50);
  agent.link.suspend();
  agent.link.resume();
  assert.equal(asked(agent), 2);
  await until(() => agent.tunnel.closed);
});

test("a round trip is measured anew each time, by one ping for all who ask meanwhile, and only where there is a way", async () => {
  using agent = using();
  const { tunnel, link } = agent;
  const [one, other] = [tunnel.roundTrip(), tunnel.roundTrip()];
  assert.equal(one, other);
  assert.ok(Number(await one) >= 0);
  await until(() => tunnel.roundTrip() !== one);
  const before = tunnel.roundTrip();
  link.suspend();
  assert.equal(await tunnel.roundTrip(), undefined);
  link.resume();
  assert.notEqual(tunnel.roundTrip(), before, "what was asked over another way is not waited for");
  agent.cut();
  await until(() => tunnel.closed);
  assert.equal(await tunnel.roundTrip(), undefined);
});

test("a ping that has not come back in time is shared no longer", async (t) => {
  let now = Math.ceil(performance.now()); // no fraction, which sums would round
  t.mock.method(performance, "now", () => now); // before the session, which keeps it
  using agent = using();
  const { tunnel } = agent;
  const old = tunnel.roundTrip();
  now += 999;
  assert.equal(tunnel.roundTrip(), old);
  now += 1;
  const fresh = tunnel.roundTrip();
  assert.notEqual(fresh, old);
  assert.equal(tunnel.roundTrip(), fresh);
  assert.deepEqual(await Promise.all([old, fresh]), [1_000, 0], "each is of its own ping");
});

// ── the record of its dials ─────────────────────────────────────────────────────────────────────────────────────────

const REFUSED = new CulvertError("dial_refused", "the target refuses connections");

test("an agent rests after three dials in a row have failed, longer after each further one, and for 30 s at most", (t) => {
  let now = 1_000_000;
  t.mock.method(performance, "now", () => now);
  const record = new DialRecord();
  const restMs = (): number => {
    const before = now;
    while (record.rests) now += 250;
    return now - before;
  };
  record.failed(REFUSED);
  record.failed(REFUSED);
  assert.equal(record.rests, false);
  const rests: number[] = [];
  for (let failure = 0; failure < 8; failure++) {
    record.failed(REFUSED);
    rests.push(restMs());
  }
  assert.deepEqual(rests, [1_000, 2_000, 4_000, 8_000, 16_000, 30_000, 30_000, 30_000]);
});

test("a dial that succeeds ends the rest, and begins the count anew", () => {
  const record = new DialRecord();
  for (let failure = 0; failure < 5; failure++) record.failed(REFUSED);
  assert.equal(record.rests, true);
  record.succeeded();
  assert.equal(record.rests, false);
  record.failed(REFUSED);
  record.failed(REFUSED);
  assert.equal(record.rests, false);
});

test("what says nothing of an agent's dials, as what a caller may not reach, gives it no rest", () => {
  const record = new DialRecord();
  for (const code of ["forbidden", "caller_gone", "agent_exhausted", "agent_timeout"] as const) {
    for (let failure = 0; failure < 5; failure++) record.failed(new CulvertError(code, "no"));
    assert.equal(record.rests, false, code);
  }
});
