import assert from "node:assert/strict";
import { once } from "node:events";
import { syncBuiltinESMExports } from "node:module";
import net from "node:net";
import { type Duplex, duplexPair } from "node:stream";
import { type TestContext, test } from "node:test";
import { type Logger, pino } from "pino";
import { parseTarget } from "../../shared/address/target.ts";
import { until } from "../../shared/basics/testing/wait.ts";
import { type Lookup, lookupAll } from "../../shared/dial/dial-target.ts";
import { CulvertError } from "../../shared/outcomes.ts";
import { encodeOpen, type OpenAnswer } from "../../shared/wire/stream-head.ts";
import { readAnswer } from "../../shared/wire/testing/answer.ts";
import { Session } from "../../shared/yamux/session.ts";
import type { Stream } from "../../shared/yamux/stream.ts";
import { DuplexTransport } from "../../shared/yamux/testing/duplex-transport.ts";
import { AgentMetrics } from "../context/metrics.ts";
import type { AgentOptions } from "../context/options.ts";
import { contextOf, optionsOf } from "../testing/context.ts";
import { listenFor } from "../testing/listener.ts";
import { TargetPolicy } from "./policy.ts";
import { serve, TargetDials } from "./serve.ts";

type StreamEnd = Parameters<AgentMetrics["streamFinished"]>[0];

interface Change {
  readonly options?: Partial<AgentOptions>;
  readonly policy?: TargetPolicy;
  readonly lookup?: Lookup;
  readonly log?: Logger;
  readonly headTimeoutMs?: number;
  /** Throws in place of the process that has hardly a file descriptor left. */
  requireRoom?(): void;
}

/** A server's session whose streams an agent serves, and what the agent counted. */
function joined(t: TestContext, change: Change = {}) {
  const { lookup = lookupAll, log = pino({ level: "silent" }), requireRoom } = change;
  const { policy = new TargetPolicy({ allow: [], deny: [], allowLoopback: true }) } = change;
  const [near, far] = duplexPair();
  const finished: StreamEnd[] = [];
  const served: Promise<void>[] = [];
  const dialled: string[] = [];
  const metrics = Object.assign(new AgentMetrics({ processMetrics: false }), {
    streamFinished: (end: StreamEnd) => void finished.push(end),
    dialFinished: (outcome: string) => void dialled.push(outcome),
  });
  const options = optionsOf({ maxStreams: 8, dialTimeoutMs: 2_000, stallTimeoutMs: 0, ...change.options });
  const context = contextOf({ options, metrics, log });
  if (requireRoom !== undefined) Object.assign(context.files, { requireRoom });
  const dials = new TargetDials(context, policy, lookup);
  const onStream = (stream: Stream) => void served.push(serve(stream, context, dials, change.headTimeoutMs));
  const agent = new Session("client", new DuplexTransport(far), { onStream, onClosed: () => {} });
  const server = new Session("server", new DuplexTransport(near), { onStream: () => {}, onClosed: () => {} });
  t.after(() => {
    server.destroy();
    agent.destroy();
  });
  return { server, agent, finished, served, dials, dialled };
}

function open(server: Session, target: string, timeoutMs = 2_000): Stream {
  const stream = server.open(encodeOpen({ kind: "connect", target: parseTarget(target), timeoutMs, id: "c1" }));
  stream.on("error", () => {});
  return stream;
}

/** A target on loopback; `onSocket` gets each connection. */
async function listen(t: TestContext, onSocket: (socket: net.Socket) => void): Promise<string> {
  return `127.0.0.1:${await listenFor(t, net.createServer({ allowHalfOpen: true }, onSocket))}`;
}

/** Unlike `once`, content with an error before. */
function closed(side: Duplex): Promise<unknown> {
  return new Promise((resolve) => side.once("close", resolve));
}

async function closedPort(): Promise<number> {
  const probe = net.createServer().listen(0, "127.0.0.1");
  await once(probe, "listening");
  const { port } = probe.address() as net.AddressInfo;
  probe.close();
  await once(probe, "close");
  return port;
}

function answerOf(stream: Stream): Promise<OpenAnswer> {
  return readAnswer(stream, 3_000);
}

async function text(stream: Stream): Promise<string> {
  let all = "";
  for await (const chunk of stream) all += String(chunk);
  return all;
}

test("a stream reaches its target: answer with the address, bytes both ways, half-close both ways", async (t) => {
  const address = await listen(t, async (socket) => {
    let seen = "";
    for await (const chunk of socket.iterator({ destroyOnReturn: false })) seen += String(chunk);
    socket.end(`you said: ${seen}`);
  });
  const { server, finished, served } = joined(t);
  const stream = open(server, address);
  // Sent along with the head, before any answer.
  stream.write("hello ");
  assert.deepEqual(await answerOf(stream), { ok: true, address });
  stream.end("world");
  assert.equal(await text(stream), "you said: hello world");
  await Promise.all(served);
  const [end] = finished;
  assert.deepEqual([end?.outcome, end?.bytesUp, end?.bytesDown], ["ok", 11, 21]);
});

test("a server that asks is told how long name server and dial took; others are not", async (t) => {
  const lookup: Lookup = (_host, done) => {
    setTimeout(() => done(null, [{ address: "127.0.0.1", family: 4 }]), 20);
  };
  const { server } = joined(t, { lookup });
  const [, port = ""] = (await listen(t, () => {})).split(":");
  const answerTo = async (host: string, timed?: true): Promise<OpenAnswer> => {
    const target = parseTarget(`${host}:${port}`);
    const stream = server.open(
      encodeOpen({ kind: "connect", target, timeoutMs: 2_000, id: "c1", ...(timed && { timed }) }),
    );
    return readAnswer(
      stream.on("error", () => {}),
      2_000,
    );
  };
  const named = await answerTo("web.example", true);
  assert.ok(named.ok && named.times !== undefined && named.times.dnsMs >= 15 && named.times.dialMs >= 0);
  const literal = await answerTo("127.0.0.1", true);
  assert.ok(literal.ok && literal.times?.dnsMs === 0);
  const unasked = await answerTo("web.example");
  assert.ok(unasked.ok && unasked.times === undefined);
});

test("the ACK goes out before the name is resolved", async (t) => {
  const { server } = joined(t, { lookup: () => {} });
  const stream = open(server, "never.example:80");
  await until(() => stream.acknowledged, "ACK");
});

test("a target that refuses is answered with dial_refused, and the stream ends cleanly", async (t) => {
  const { server, finished, agent, dials, dialled } = joined(t);
  const stream = open(server, `127.0.0.1:${await closedPort()}`);
  const answer = await answerOf(stream);
  assert.ok(!answer.ok);
  assert.equal(answer.error, "dial_refused");
  assert.match(answer.detail, /refused/);
  // An end, not a reset: nothing may overtake the answer.
  assert.equal(await text(stream), "");
  stream.end();
  await until(() => agent.streamCount === 0, "no stream left");
  assert.equal(finished[0]?.outcome, "dial_refused");
  assert.deepEqual(dialled, ["dial_refused"]);
  assert.equal(dials.pending, 0);
});

test("a target that the policy forbids is refused before anything is dialled", async (t) => {
  let reached = 0;
  const address = await listen(t, () => reached++);
  const { server } = joined(t, { policy: new TargetPolicy({ allow: [], deny: ["127.0.0.0/8"], allowLoopback: true }) });
  const answer = await answerOf(open(server, address));
  assert.ok(!answer.ok);
  assert.equal(answer.error, "forbidden");
  assert.match(answer.detail, /--deny-target 127\.0\.0\.0\/8/);
  assert.equal(reached, 0);
});

test("the policy judges each address that a name resolves to, and not the name", async (t) => {
  let reached = 0;
  const [, port = ""] = (await listen(t, () => reached++)).split(":");
  const lookup: Lookup = (_host, done) => done(null, [{ address: "127.0.0.1", family: 4 }]);
  const denied = new TargetPolicy({ allow: [], deny: ["127.0.0.1/32"], allowLoopback: true });
  const refused = await answerOf(open(joined(t, { policy: denied, lookup }).server, `harmless.example:${port}`));
  assert.ok(!refused.ok && refused.error === "forbidden", JSON.stringify(refused));
  assert.match(refused.detail, /--deny-target 127\.0\.0\.1\/32/);
  assert.equal(reached, 0);

  const others = new TargetPolicy({ allow: [], deny: ["127.0.0.2/32"], allowLoopback: true });
  const answer = await answerOf(open(joined(t, { policy: others, lookup }).server, `harmless.example:${port}`));
  assert.ok(answer.ok, JSON.stringify(answer));
});

test("the server may ask for a shorter dial than the agent's own limit, not for a longer one", async (t) => {
  const never = { lookup: () => {} };
  const shorter = await answerOf(open(joined(t, never).server, "slow.example:80", 50));
  assert.ok(!shorter.ok);
  assert.deepEqual([shorter.error, /0\.05 s/.test(shorter.detail)], ["dial_timeout", true]);
  const longer = await answerOf(
    open(joined(t, { ...never, options: { dialTimeoutMs: 60 } }).server, "slow.example:80", 100_000),
  );
  assert.ok(!longer.ok);
  assert.deepEqual([longer.error, /0\.06 s/.test(longer.detail)], ["dial_timeout", true]);
});

test("a caller that goes away during the dial takes the dial with it", async (t) => {
  const { server, finished, dials } = joined(t, { lookup: () => {} });
  const stream = open(server, "never.example:80");
  await until(() => dials.pending === 1, "the dial");
  stream.reset();
  await until(() => finished.length === 1, "the end of the stream");
  assert.equal(finished[0]?.outcome, "caller_gone");
  assert.equal(dials.pending, 0);
});

test("a stream that is reset after its head has come, and before its target is dialled, is not dialled for", async (t) => {
  const { server, agent, finished, dials } = joined(t, { lookup: () => {}, options: { dialTimeoutMs: 600_000 } });
  const stream = server.open();
  stream.on("error", () => {});
  await until(() => agent.streamCount === 1);
  const [served = assert.fail("no stream")] = agent.streams();
  served.prependOnceListener("readable", () => process.nextTick(() => served.destroy()));
  const target = parseTarget("never.example:80");
  stream.write(encodeOpen({ kind: "connect", target, timeoutMs: 600_000, id: "c1" }));
  await until(() => finished.length === 1, "the end of the stream");
  assert.deepEqual([finished[0]?.outcome, dials.pending], ["caller_gone", 0]);
});

test("a lost session ends its dials and resets its targets", async (t) => {
  let reset: Promise<boolean> | undefined;
  const address = await listen(t, (socket) => {
    socket.resume();
    reset = new Promise((resolve) => socket.once("close", resolve));
  });
  const { server, agent, served, dials, finished } = joined(t);
  const stream = open(server, address);
  assert.equal((await answerOf(stream)).ok, true);
  agent.destroy(new Error("cut"));
  // `close` says whether there was an error: it must not look like an end.
  assert.equal(await reset, true);
  await Promise.all(served);
  assert.equal(dials.pending, 0);
  assert.equal(finished.length, 1);
});

test("a target's reset is a reset of the stream, and the other way round", async (t) => {
  const sockets: net.Socket[] = [];
  const address = await listen(t, (socket) => sockets.push(socket.resume()));
  const { server } = joined(t);

  const first = open(server, address);
  assert.equal((await answerOf(first)).ok, true);
  first.resume();
  const lost = closed(first);
  sockets[0]?.resetAndDestroy();
  await lost;
  assert.equal((first.errored as NodeJS.ErrnoException | null)?.code, "ECONNRESET");

  const second = open(server, address);
  assert.equal((await answerOf(second)).ok, true);
  await until(() => sockets.length === 2, "second socket");
  const failed = new Promise<NodeJS.ErrnoException>((resolve) => sockets[1]?.once("error", resolve));
  second.reset();
  assert.equal((await failed).code, "ECONNRESET");
});

test("without file descriptors to spare a stream is refused before its target is dialled", async (t) => {
  const { server, dials } = joined(t, {
    requireRoom: () => {
      throw new CulvertError("agent_exhausted", "the agent has 199 of its 200 files open");
    },
  });
  const refused = await answerOf(open(server, "127.0.0.1:9"));
  assert.deepEqual([refused.ok, dials.pending], [false, 0]);
  assert.match(JSON.stringify(refused), /agent_exhausted.*199 of its 200 files/);
});

test("more dials at once than the limit are refused as agent_exhausted, and room is given back", async (t) => {
  const { server, dials } = joined(t, { options: { maxStreams: 2 }, lookup: () => {} });
  const waiting = [open(server, "a.example:80"), open(server, "b.example:80")];
  await until(() => dials.pending === 2, "two dials");
  const refused = await answerOf(open(server, "c.example:80"));
  assert.ok(!refused.ok);
  assert.equal(refused.error, "agent_exhausted");
  for (const stream of waiting) stream.reset();
  await until(() => dials.pending === 0, "room");
});

test("a head that never comes, and one that is none, end the stream with internal", async (t) => {
  const { server, finished } = joined(t, { headTimeoutMs: 50 });
  const silent = server.open();
  silent.on("error", () => {});
  const late = await answerOf(silent);
  assert.ok(!late.ok);
  assert.equal(late.error, "internal");
  const garbage = server.open(Buffer.from("GET / HTTP/1.1\r\n\r\n"));
  garbage.on("error", () => {});
  const bad = await answerOf(garbage);
  assert.ok(!bad.ok);
  assert.equal(bad.error, "internal");
  assert.deepEqual(
    finished.map((end) => end.outcome),
    ["internal", "internal"],
  );
});

test("a server that opens any number of such streams fills no log", async (t) => {
  const errors: unknown[] = [];
  const { server, finished } = joined(t, {
    log: pino({ level: "info" }, { write: (line) => errors.push(JSON.parse(line).msg) }),
  });
  for (let count = 0; count < 30; count++) {
    const garbage = server.open(Buffer.from("GET / HTTP/1.1\r\n\r\n"));
    garbage.on("error", () => {});
    await answerOf(garbage);
    garbage.destroy(); // its place is another's
  }
  assert.equal(finished.length, 30);
  assert.deepEqual(errors, new Array(10).fill("stream refused"));
});

test("a refused stream whose caller never ends its side is reset after a while", async (t) => {
  t.mock.timers.enable({ apis: ["setTimeout"] });
  const { server, agent, finished } = joined(t, {
    policy: new TargetPolicy({ allow: [], deny: ["*"], allowLoopback: true }),
  });
  const stream = open(server, "127.0.0.1:9");
  const ended = once(stream, "end");
  const answer = readAnswer(stream, 3_000);
  assert.equal((await answer).ok, false);
  stream.resume();
  await ended;
  assert.deepEqual([agent.streamCount, finished[0]?.outcome], [1, "forbidden"]);
  t.mock.timers.tick(5_000);
  assert.equal(agent.streamCount, 0);
});

test("a refused stream that has ended is not held for that while", async (t) => {
  t.mock.timers.enable({ apis: ["setTimeout"] });
  const { server, agent } = joined(t, {
    policy: new TargetPolicy({ allow: [], deny: ["*"], allowLoopback: true }),
  });
  const stream = open(server, "127.0.0.1:9");
  assert.equal((await readAnswer(stream, 3_000)).ok, false);
  const [served = assert.fail("no stream")] = agent.streams();
  const reset = t.mock.method(served, "reset");
  stream.resume().end();
  await until(() => agent.streamCount === 0);
  t.mock.timers.tick(5_000);
  assert.equal(reset.mock.callCount(), 0);
});

test("a caller that leaves at the moment at which its target is reached leaves no connection there", async (t) => {
  let targetClosed = false;
  const address = await listen(t, (socket) => {
    socket
      .on("error", () => {})
      .on("close", () => {
        targetClosed = true;
      });
    socket.resume();
  });
  const { server, agent, finished, served } = joined(t);
  const { connect } = net;
  const mocked = t.mock.method(net, "connect", (options: net.TcpNetConnectOpts) =>
    connect(options).once("connect", () => {
      for (const stream of agent.streams()) stream.destroy();
    }),
  );
  syncBuiltinESMExports();
  t.after(() => {
    mocked.mock.restore();
    syncBuiltinESMExports();
  });
  open(server, address);
  await until(() => served.length === 1);
  await Promise.all(served);
  await until(() => targetClosed, "the end of the connection to the target");
  assert.equal(finished[0]?.outcome, "caller_gone");
});
