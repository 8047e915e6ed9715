import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import type { Duplex } from "node:stream";
import { test } from "node:test";
import type { WebSocket } from "ws";
import { TurnQueue } from "../../shared/basics/timers.ts";
import { Carrier } from "../../shared/link/carrier.ts";
import type { ControlMessage, Welcome } from "../../shared/link/control.ts";
import { Link } from "../../shared/link/link.ts";
import { acceptCarrier } from "../../shared/link/testing/ends.ts";
import { ROOT } from "../../shared/runtime/testing/project.ts";
import { CloseCode, FEATURES, SUBPROTOCOL } from "../../shared/wire/handshake.ts";
import { receiveHead } from "../../shared/wire/stream-head.ts";
import { Session } from "../../shared/yamux/session.ts";
import type { Stream } from "../../shared/yamux/stream.ts";
import { established } from "../harness/caller.ts";
import { captureLog } from "../harness/log-lines.ts";
import { helloText, type RawAgent, rawAgent } from "../harness/raw-agent.ts";
import { rawServer } from "../harness/raw-server.ts";
import { rawHead } from "../harness/scripted-agent.ts";
import { waitFor, within } from "../harness/wait.ts";
import { startWorld } from "../harness/world.ts";

/**
 * The promises of docs/versions.md, with stored words of peers that are one version older and newer. They are never
 * changed: a version that is published gets files of its own.
 */
type Words = Readonly<Record<string, unknown>>;

interface AgentWords {
  readonly beforeHello: readonly Words[];
  readonly hello: Words;
  readonly afterWelcome: readonly Words[];
  /** To a stream of the server's. */
  readonly answer: Words;
  /** Heads of streams that the server does not know. */
  readonly streams: readonly Words[];
}

interface ServerWords {
  readonly welcome: Words;
  readonly afterWelcome: readonly Words[];
  /** Fields of a request beside its kind and target. */
  readonly request: Words;
  /** Heads of streams that the agent does not know. */
  readonly streams: readonly Words[];
}

const RATES = { graceMs: 0, replayBytes: 1 << 24 };

for (const age of ["older", "newer"] as const) {
  const agent = stored<AgentWords>(`${age}-agent.json`);
  const server = stored<ServerWords>(`${age}-server.json`);

  test(`a server serves an agent that is ${age}: its words, its streams and the callers through it`, async () => {
    await using world = await startWorld({ agents: 0 });
    await using raw = await rawAgent(world, undefined, ["culvert.v2", SUBPROTOCOL]);
    assert.equal(raw.ws.protocol, SUBPROTOCOL);
    using session = await greet(raw, agent);
    await using connection = await established(world.connect("10.0.0.1:1"));
    await connection.send("through it");
    assert.equal(await connection.read(), "through it");
    for (const head of agent.streams) {
      await assert.rejects(answerTo(session, head), /the peer reset the stream/, JSON.stringify(head));
    }
    await connection.send("and after it");
    assert.equal(await connection.read(), "and after it");
  });

  test(`an agent serves a server that is ${age}: its words, its requests and its streams`, async () => {
    await using world = await startWorld({ targets: ["echo"], agents: 0 });
    let accepted: Promise<DisposableSession> | undefined;
    const onUpgrade = (ws: WebSocket, socket: Duplex) => {
      accepted = welcome(ws, socket, server);
    };
    await using other = await rawServer(world, { times: 1, onUpgrade });
    const real = await world.startAgent({ proxyServerPort: other.port });
    using session = (await accepted) ?? assert.fail("no agent came");
    const target = world.targets.echo.address;
    const request = { kind: "connect", target, timeoutMs: 5_000, id: "1", ...server.request };
    assert.equal((await answerTo(session, request))["ok"], true);
    for (const head of server.streams) {
      assert.match(JSON.stringify(await answerTo(session, head)), /^\{"error":"forbidden",/, JSON.stringify(head));
    }
    assert.equal((await answerTo(session, request))["ok"], true);
    assert.deepEqual([real.connected, other.accepted], [true, 1]);
  });
}

test("server and agent name what they understand in welcome and hello", async () => {
  await using world = await startWorld({ agents: 0 });
  await using raw = await rawAgent(world);
  await raw.greet();
  assert.deepEqual(JSON.parse(raw.texts[0] ?? "{}").features, FEATURES);
  const hellos: Buffer[] = [];
  const onUpgrade = (ws: WebSocket) => void ws.once("message", (hello: Buffer) => hellos.push(hello));
  await using other = await rawServer(world, { times: 1, onUpgrade });
  await world.startAgent({ proxyServerPort: other.port }, { wait: false });
  await waitFor(() => hellos.length === 1);
  assert.deepEqual(JSON.parse(String(hellos[0])).features, FEATURES);
});

test("an agent two versions newer is refused with a close code and what to do", async () => {
  await using world = await startWorld({ agents: 0 });
  await using raw = await rawAgent(world);
  raw.ws.send(helloText({ version: 3 }));
  const { code, reason } = await within(raw.closed, 5_000, "the refusal");
  assert.equal(code, CloseCode.badControl);
  assert.equal(reason, "bad hello message: version must be 1 or 2; update the older one of agent and server");
});

test("an agent that is answered in a version it did not offer says so, and tries again", async () => {
  const { log, lines } = captureLog();
  await using world = await startWorld({ agents: 0, log });
  const { welcome: words } = stored<ServerWords>("newer-server.json");
  const onUpgrade = (ws: WebSocket) => {
    ws.once("message", () => ws.send(JSON.stringify({ ...words, version: 2 })));
  };
  await using newer = await rawServer(world, { times: 1, onUpgrade });
  const agent = await world.startAgent({ proxyServerPort: newer.port, syncIntervalMs: 20 }, { wait: false });
  await within(agent.whenConnected(), 5_000, "the real server");
  const failed = await waitFor(() => lines.find(({ msg }) => msg === "uplink attempt failed"));
  assert.match(String(failed["reason"]), /bad welcome message: version must be 1, which this agent offered/);
});

// ── helpers ──────────────────────────────────────────────────────────────────────────────────────────────────────────

function stored<T>(name: string): T {
  return JSON.parse(readFileSync(join(ROOT, "e2e/scenarios/version-skew", name), "utf8")) as T;
}

/** The agent's side of a session, whose targets echo. */
async function greet({ ws, socket }: RawAgent, words: AgentWords): Promise<DisposableSession> {
  for (const message of words.beforeHello) ws.send(JSON.stringify(message));
  const carrier = new Carrier(ws, socket, { role: "client", keepaliveMs: 20_000 });
  const welcomed = new Promise<ControlMessage>((resolve, reject) => {
    carrier.onControl = resolve;
    carrier.onEnded = (reason) => reject(reason ?? new Error("the server closed before its welcome"));
  });
  carrier.sendControl(words.hello as ControlMessage);
  const { link } = (await within(welcomed, 5_000, "the welcome")) as Welcome;
  const echo = (stream: Stream) => {
    stream.accept();
    const onHead = () => {
      stream.write(rawHead(JSON.stringify(words.answer)));
      stream.pipe(stream);
    };
    receiveHead(
      stream.on("error", () => {}),
      onHead,
      () => {},
    );
  };
  const session = new Session("client", new Link(link, "server", carrier, RATES), { onStream: echo, onClosed() {} });
  for (const message of words.afterWelcome) carrier.sendControl(message as ControlMessage);
  return Object.assign(session, { [Symbol.dispose]: () => session.destroy() });
}

/** The server's side of a session. */
async function welcome(ws: WebSocket, socket: Duplex, words: ServerWords): Promise<DisposableSession> {
  const { carrier } = await acceptCarrier(ws, socket, {
    ...{ helloTimeoutMs: 5_000, keepaliveMs: 20_000, turns: new TurnQueue() },
    welcome: () => words.welcome as Welcome,
  });
  const link = new Link(String(words.welcome["link"]), "agent", carrier, RATES);
  const session = new Session("server", link, { onStream: (stream) => stream.destroy(), onClosed() {} });
  for (const message of words.afterWelcome) carrier.sendControl(message as ControlMessage);
  return Object.assign(session, { [Symbol.dispose]: () => session.destroy() });
}

type DisposableSession = Session & Disposable;

/** Opens a stream with this head and reads the head that comes back. */
async function answerTo(session: Session, head: Words): Promise<Words> {
  const stream = session.open(rawHead(JSON.stringify(head)));
  stream.on("error", () => {});
  const answer = new Promise<Buffer>((resolve, reject) => receiveHead(stream, resolve, reject));
  try {
    return JSON.parse(String(await within(answer, 5_000, `an answer to ${JSON.stringify(head)}`)));
  } finally {
    stream.destroy();
  }
}
