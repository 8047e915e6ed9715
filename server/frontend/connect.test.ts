import assert from "node:assert/strict";
import { once } from "node:events";
import { type AddressInfo, createServer, connect as dial, type Socket } from "node:net";
import { test } from "node:test";
import { createLogger } from "../../shared/process/logger.ts";
import { ServerMetrics } from "../metrics.ts";
import { Registry } from "../tunnels/registry.ts";
import { type FakeAgent, fakeAgent } from "../tunnels/testing.ts";
import type { Door } from "./authenticate.ts";
import { type ConnectOptions, connect } from "./connect.ts";
import { Frontend, type FrontendOptions } from "./listen.ts";

const ESTABLISHED = "HTTP/1.1 200 Connection Established\r\n\r\n";
const CONNECT = "CONNECT 10.0.0.1:10250 HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n";

/** What a finished connection leaves in the log. */
interface Line {
  readonly outcome?: string;
  readonly cluster?: string;
  readonly caller?: string;
  readonly target?: string;
  readonly agent?: string;
  readonly bytesUp?: number;
  readonly bytesDown?: number;
  readonly endedBy?: string;
}

/** A frontend on loopback with fake agents behind it. */
async function start(
  agents: readonly FakeAgent[],
  options: Partial<ConnectOptions & FrontendOptions & { draining: boolean }> = {},
) {
  const lines: Line[] = [];
  const log = createLogger({
    level: "debug",
    format: "json",
    name: "test",
    destination: { write: (line: string) => void lines.push(JSON.parse(line)) },
  });
  const metrics = new ServerMetrics({ processMetrics: false });
  const tunnels = new Registry(["default"], { serverId: "srv", maxAgents: 10, drainTimeoutMs: 100 });
  const cluster = tunnels.cluster("default");
  const join = (agent: FakeAgent) => cluster.reserve(agent.tunnel.agent).hold(agent.tunnel);
  for (const agent of agents) join(agent);
  const deps = {
    options: {
      connectTimeoutMs: 2_000,
      dialTimeoutMs: 1_000,
      agentAckTimeoutMs: 500,
      agentWaitMs: 50,
      maxPendingConnects: 100,
      establishedGapMs: 10,
      stallTimeoutMs: 0,
      ...options,
    },
    tunnels,
    metrics,
    log,
    draining: () => options.draining ?? false,
  };
  const door: Door = { kind: "unix", cluster: "default" };
  const frontend = new Frontend(
    door,
    { headerLimit: 16 * 1024, headerTimeoutMs: 1_000, ...options },
    {
      onConnect: (request, socket, head) => void connect(request, socket, head, door, deps),
      onRefused: (reason) => log.info({ reason }, "request refused"),
    },
  );
  const server = createServer({ allowHalfOpen: true }, (socket) => frontend.take(socket)).listen(0, "127.0.0.1");
  await once(server, "listening");
  return {
    cluster,
    frontend,
    join,
    lines,
    metrics,
    call: () => new Caller((server.address() as AddressInfo).port),
    [Symbol.asyncDispose]: async () => {
      server.close();
      frontend.sockets.resetAll();
      for (const agent of agents) agent.cut();
    },
  };
}

/** A caller that keeps each read apart. */
class Caller {
  readonly socket: Socket;
  readonly reads: string[] = [];
  ended = false;

  constructor(port: number) {
    this.socket = dial({ port, host: "127.0.0.1", allowHalfOpen: true });
    this.socket.on("data", (chunk) => this.reads.push(chunk.toString("latin1")));
    this.socket.on("end", () => {
      this.ended = true;
    });
    this.socket.on("error", () => {});
  }

  get text(): string {
    return this.reads.join("");
  }

  /** Sends and waits for a complete answer's head. */
  async ask(request: string): Promise<string> {
    this.socket.write(request, "latin1");
    await until(() => this.text.includes("\r\n\r\n") || this.socket.destroyed);
    return this.text;
  }
}

async function until(condition: () => boolean): Promise<void> {
  const deadline = Date.now() + 5_000;
  while (!condition()) {
    assert.ok(Date.now() < deadline, `not within 5 s: ${condition}`);
    await new Promise((resolve) => setTimeout(resolve, 1));
  }
}

test("a CONNECT is answered with 200 alone, bytes flow, and one line tells of it", async () => {
  const agent = fakeAgent({ onTarget: (stream) => stream.pipe(stream) });
  await using world = await start([agent]);
  const caller = world.call();
  assert.equal(await caller.ask(CONNECT), ESTABLISHED);
  caller.socket.write("hello");
  await until(() => caller.text.endsWith("hello"));
  caller.socket.end();
  await until(() => caller.ended && world.lines.length === 1);
  const {
    outcome,
    cluster,
    caller: name,
    target,
    agent: agentId,
    bytesUp,
    bytesDown,
    endedBy,
  } = world.lines[0] as Line;
  assert.deepEqual([outcome, cluster, name, target, agentId], ["ok", "default", "unix", "10.0.0.1:10250", "a"]);
  assert.deepEqual([bytesUp, bytesDown, endedBy], [5, 5, "caller"]);
});

test("a target that speaks first is never in the read that carries the 200, but a gap later", async () => {
  const agent = fakeAgent({ onTarget: (stream) => stream.write("banner") });
  await using world = await start([agent], { establishedGapMs: 40 });
  for (const early of ["", "early bytes"]) {
    const caller = world.call();
    await caller.ask(CONNECT + early);
    const answered = performance.now();
    // Whoever spoke before the 200 has not shown that it has read it.
    if (early !== "") caller.socket.write("and more");
    await until(() => caller.text.endsWith("banner"));
    assert.ok(performance.now() - answered >= 30, `${performance.now() - answered} ms`);
    assert.deepEqual(caller.reads, [ESTABLISHED, "banner"]);
    caller.socket.destroy();
  }
});

test("a caller that speaks first does not wait for the gap", async () => {
  const agent = fakeAgent({ onTarget: (stream) => stream.pipe(stream) });
  await using world = await start([agent], { establishedGapMs: 60_000 });
  const caller = world.call();
  await caller.ask(CONNECT);
  caller.socket.write("first");
  await until(() => caller.text.endsWith("first"));
});

test("bytes sent together with the CONNECT, and before the answer, reach the target once and in order", async () => {
  const got: Buffer[] = [];
  let answer: (() => void) | undefined;
  const agent = fakeAgent({
    answer: () =>
      new Promise((resolve) => {
        answer = () => resolve({ ok: true });
      }),
    onTarget: (stream) => stream.on("data", (chunk: Buffer) => got.push(chunk)),
  });
  await using world = await start([agent]);
  const caller = world.call();
  caller.socket.write(`${CONNECT}one `);
  await until(() => answer !== undefined);
  caller.socket.write("two ");
  await new Promise((resolve) => setTimeout(resolve, 20));
  assert.equal(Buffer.concat(got).length, 0, "nothing before the dial is over");
  answer?.();
  await until(() => caller.text === ESTABLISHED);
  caller.socket.end("three");
  await until(() => Buffer.concat(got).length >= 13);
  assert.equal(Buffer.concat(got).toString(), "one two three");
  await until(() => agent.streams[0]?.readableEnded === true);
  agent.streams[0]?.end();
  await until(() => world.lines.length === 1);
  assert.equal(world.lines[0]?.bytesUp, 13);
});

test("half-close passes both ways after the 200", async () => {
  const agent = fakeAgent({
    onTarget: (stream) => {
      stream.resume();
      stream.on("end", () => stream.end("answer after the end"));
    },
  });
  await using world = await start([agent]);
  const caller = world.call();
  await caller.ask(CONNECT);
  caller.socket.end();
  await until(() => caller.ended);
  assert.equal(caller.text, `${ESTABLISHED}answer after the end`);
});

test("a caller that leaves before the answer cancels the dial at the agent", async () => {
  for (const leave of [(socket: Socket) => socket.end(), (socket: Socket) => socket.resetAndDestroy()]) {
    const agent = fakeAgent({ answer: () => new Promise(() => {}) });
    await using world = await start([agent]);
    const caller = world.call();
    caller.socket.write(`${CONNECT}early`);
    await until(() => agent.streams.length === 1);
    leave(caller.socket);
    await until(() => agent.streams[0]?.destroyed === true && world.lines.length === 1);
    assert.equal(world.lines[0]?.outcome, "caller_gone");
    assert.equal(caller.text, "");
    assert.equal(world.cluster.pendingConnects, 0);
  }
});

test("a reset by the target is a reset at the caller, not a clean end", async () => {
  const agent = fakeAgent({ onTarget: (stream) => stream.once("data", () => stream.reset()) });
  await using world = await start([agent]);
  const caller = world.call();
  await caller.ask(CONNECT);
  caller.socket.write("go");
  const [error] = await once(caller.socket, "error");
  assert.equal(error.code, "ECONNRESET");
  assert.equal(caller.ended, false);
});

test("a reset by the caller is a reset of the stream", async () => {
  let got = 0;
  const agent = fakeAgent({ onTarget: (stream) => stream.on("data", (chunk: Buffer) => (got += chunk.length)) });
  await using world = await start([agent]);
  const caller = world.call();
  await caller.ask(CONNECT);
  caller.socket.write("x");
  await until(() => got === 1);
  caller.socket.resetAndDestroy();
  await until(() => agent.streams[0]?.destroyed === true);
  assert.equal(agent.streams[0]?.readableEnded, false);
});

test("without an agent a CONNECT waits a moment, then hears 503", async () => {
  await using world = await start([], { agentWaitMs: 60 });
  const started = performance.now();
  const caller = world.call();
  assert.match(await caller.ask(CONNECT), /^HTTP\/1\.1 503 no agent of cluster "default" is connected: .*\r\n/);
  assert.ok(performance.now() - started >= 55);
  await until(() => caller.ended);
});

test("an agent that comes while a CONNECT waits gets it", async () => {
  const agent = fakeAgent({ onTarget: (stream) => stream.pipe(stream) });
  await using world = await start([], { agentWaitMs: 5_000 });
  const caller = world.call();
  caller.socket.write(CONNECT);
  await until(() => world.cluster.pendingConnects === 1);
  world.join(agent);
  await until(() => caller.text === ESTABLISHED);
  agent.cut();
});

test("an agent that does not take the stream is replaced by another one, once", async () => {
  const deaf = fakeAgent({ agentId: "deaf", onStream: () => {} });
  const well = fakeAgent({ agentId: "well", onTarget: (stream) => stream.pipe(stream) });
  await using world = await start([deaf, well], { agentAckTimeoutMs: 30 });
  for (const caller of [world.call(), world.call()]) assert.equal(await caller.ask(CONNECT), ESTABLISHED);
  assert.ok(deaf.streams.length > 0, "the deaf one was tried");

  const deaf2 = fakeAgent({ agentId: "deaf2", onStream: () => {} });
  const deaf3 = fakeAgent({ agentId: "deaf3", onStream: () => {} });
  await using quiet = await start([deaf, deaf2, deaf3], { agentAckTimeoutMs: 30 });
  assert.match(await quiet.call().ask(CONNECT), /^HTTP\/1\.1 504 agent "\w+" does not respond: .*\r\n/);
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

test("an agent that never answers does not hold a CONNECT beyond its deadline", async () => {
  const agent = fakeAgent({ answer: () => new Promise(() => {}) });
  await using world = await start([agent], { connectTimeoutMs: 150 });
  const started = performance.now();
  assert.match(await world.call().ask(CONNECT), /^HTTP\/1\.1 504 /);
  assert.ok(performance.now() - started < 1_000);
  assert.equal(world.cluster.pendingConnects, 0);
});

test("more CONNECTs than may wait hear 503 at once", async () => {
  const agent = fakeAgent({ answer: () => new Promise(() => {}) });
  await using world = await start([agent], { maxPendingConnects: 1 });
  world.call().socket.write(CONNECT);
  await until(() => world.cluster.pendingConnects === 1);
  assert.match(
    await world.call().ask(CONNECT),
    /^HTTP\/1\.1 503 too many CONNECTs wait for an answer \(1, --max-pending-connects\): try again\r\n/,
  );
});

test("losing the agent ends its connections at once, and the log says who", async () => {
  const agent = fakeAgent({ onTarget: (stream) => stream.pipe(stream) });
  await using world = await start([agent]);
  const caller = world.call();
  await caller.ask(CONNECT);
  caller.socket.write("x");
  await until(() => caller.text.endsWith("x"));
  agent.cut();
  await until(() => caller.socket.destroyed && world.lines.length === 1);
  assert.equal(caller.ended, false);
  assert.equal(world.lines[0]?.outcome, "agent_lost");
  assert.equal(world.lines[0]?.endedBy, "agent");
});

test("a draining server answers new CONNECTs with 503", async () => {
  await using world = await start([fakeAgent()], { draining: true });
  assert.match(await world.call().ask(CONNECT), /^HTTP\/1\.1 503 this server is shutting down/);
});

const ODDITIES: ReadonlyArray<readonly [sentence: string, request: string, answer: RegExp]> = [
  ["GET is 405", "GET / HTTP/1.1\r\nHost: x\r\n\r\n", /^HTTP\/1\.1 405 /],
  ["POST with a body is 405", `POST / HTTP/1.1\r\nContent-Length: 5\r\n\r\nhello`, /^HTTP\/1\.1 405 /],
  [
    "a request to upgrade is 405",
    "GET / HTTP/1.1\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n",
    /^HTTP\/1\.1 405 /,
  ],
  [
    "Expect on another method is 405, without 100",
    "POST / HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n",
    /^HTTP\/1\.1 405 /,
  ],
  ["a strange Expect is 405", "GET / HTTP/1.1\r\nExpect: wonders\r\n\r\n", /^HTTP\/1\.1 405 /],
  ["CONNECT in HTTP/1.0 is a CONNECT", "CONNECT a:1 HTTP/1.0\r\n\r\n", /^HTTP\/1\.1 200 /],
  ["CONNECT without Host is a CONNECT", "CONNECT a:1 HTTP/1.1\r\n\r\n", /^HTTP\/1\.1 200 /],
  ["Host is not compared", "CONNECT a:1 HTTP/1.1\r\nHost: b:2\r\nHost: c\r\n\r\n", /^HTTP\/1\.1 200 /],
  [
    "Expect and Upgrade on CONNECT mean nothing",
    "CONNECT a:1 HTTP/1.1\r\nExpect: 100-continue\r\nConnection: upgrade\r\nUpgrade: h2c\r\n\r\n",
    /^HTTP\/1\.1 200 /,
  ],
  ["an IPv6 target is a CONNECT", "CONNECT [::1]:1 HTTP/1.1\r\n\r\n", /^HTTP\/1\.1 200 /],
  ["no port is 400", "CONNECT a HTTP/1.1\r\n\r\n", /^HTTP\/1\.1 400 /],
  ["port 0 is 400", "CONNECT a:0 HTTP/1.1\r\n\r\n", /^HTTP\/1\.1 400 /],
  ["user information is 400", "CONNECT u@a:1 HTTP/1.1\r\n\r\n", /^HTTP\/1\.1 400 /],
  ["a path is 400", "CONNECT /a HTTP/1.1\r\n\r\n", /^HTTP\/1\.1 400 /],
  ["a target beyond 255 bytes is 400", `CONNECT ${"a".repeat(300)}:1 HTTP/1.1\r\n\r\n`, /^HTTP\/1\.1 400 /],
  ["garbage is 400", "\x16\x03\x01\x02\x00\x01\x00garbage\r\n\r\n", /^HTTP\/1\.1 400 /],
  [
    "a header beyond the limit is 431",
    `CONNECT a:1 HTTP/1.1\r\nX: ${"y".repeat(17 * 1024)}\r\n\r\n`,
    /^HTTP\/1\.1 431 /,
  ],
  ["a broken header line is 400", "CONNECT a:1 HTTP/1.1\r\nbroken\r\n\r\n", /^HTTP\/1\.1 400 /],
];

for (const [sentence, request, answer] of ODDITIES) {
  test(sentence, async () => {
    await using world = await start([fakeAgent({ onTarget: (stream) => stream.resume() })]);
    const caller = world.call();
    const text = await caller.ask(request);
    assert.match(text, answer);
    assert.equal(text.match(/HTTP\/1\.1 \d/g)?.length, 1, "one answer");
    if (!text.startsWith(ESTABLISHED)) await until(() => caller.ended);
  });
}

test("a CONNECT behind another request gets nothing but that request's answer", async () => {
  const agent = fakeAgent();
  await using world = await start([agent]);
  const caller = world.call();
  const text = await caller.ask(`GET / HTTP/1.1\r\nHost: x\r\n\r\n${CONNECT}`);
  await until(() => caller.ended);
  assert.match(text, /^HTTP\/1\.1 405 /);
  assert.equal(caller.text.match(/HTTP\/1\.1 \d/g)?.length, 1);
  assert.equal(agent.streams.length, 0);
});

test("a header that does not come in time is 408, even when bytes keep trickling", async () => {
  await using world = await start([], { headerTimeoutMs: 100 });
  const caller = world.call();
  const trickle = setInterval(() => caller.socket.write("X"), 10);
  assert.match(await caller.ask("CONNECT a:1 HTTP/1.1\r\n"), /^HTTP\/1\.1 408 /);
  clearInterval(trickle);
  await until(() => caller.ended);
});

test("nothing of a connection is left in the frontend after its end", async () => {
  await using world = await start([fakeAgent({ onTarget: (stream) => stream.pipe(stream) })]);
  const callers = [world.call(), world.call(), world.call()];
  await callers[0]?.ask(CONNECT);
  await callers[1]?.ask("GET / HTTP/1.1\r\n\r\n");
  await until(() => world.frontend.sockets.size === 3);
  for (const caller of callers) caller.socket.destroy();
  await until(() => world.frontend.sockets.size === 0);
});
