import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { after, before, test } from "node:test";
import { LINK_ENDED } from "../../shared/link/link-events.ts";
import { Flag, FrameType, header } from "../../shared/yamux/frame.ts";
import { established } from "../harness/caller.ts";
import { captureLog, type LogLine } from "../harness/log-lines.ts";
import { helloText, type RawAgent, rawAgent } from "../harness/raw-agent.ts";
import { SteadyCaller } from "../harness/steady-caller.ts";
import { waitFor, within } from "../harness/wait.ts";
import { startWorld, type World } from "../harness/world.ts";

/**
 * Peers with an agent's certificate that do not keep to the rules. One server for all of them, because that is the
 * point: whatever one has done, the streams of the others go on, from the first test to the last.
 */
const HELLO_TIMEOUT_MS = 3_000;
/** An agent that takes no stream is noticed after this time. */
const ACK_TIMEOUT_MS = 6_000;
let world: World<"echo">;
let steadyCaller: SteadyCaller;
let lines: LogLine[];

before(async () => {
  const captured = captureLog("debug"); // of so many agents of one identity, not all are logged above debug
  lines = captured.lines;
  world = await startWorld({
    ...{ targets: ["echo"], log: captured.log },
    server: { helloTimeoutMs: HELLO_TIMEOUT_MS, agentAckTimeoutMs: ACK_TIMEOUT_MS },
  });
  steadyCaller = new SteadyCaller(await world.connect("echo", { via: "tls" }));
});

after(async () => {
  try {
    await steadyCaller.assertUnharmed();
    assert.equal(lines.filter(({ level }) => level === "error" || level === "fatal").length, 0, "a peer is no error");
  } finally {
    await steadyCaller[Symbol.asyncDispose]();
    await world[Symbol.asyncDispose]();
  }
});

// ── before a tunnel stands ───────────────────────────────────────────────────────────────────────────────────────

interface Hostile {
  readonly does: (peer: RawAgent) => void;
  /** The close code it hears; 1006: it is cut without a word. */
  readonly closes: number;
  readonly because: RegExp;
}

const frame = (opcode: number, payload: Buffer, { masked = true } = {}): Buffer =>
  Buffer.concat([
    Buffer.from([0x80 | opcode, (masked ? 0x80 : 0) | payload.length]),
    masked ? Buffer.alloc(4) : Buffer.alloc(0),
    payload,
  ]);

const BEFORE_HELLO: Readonly<Record<string, Hostile>> = {
  "bytes that are no WebSocket frame": {
    ...{ closes: 1002, because: /RSV|opcode|frame/i },
    does: ({ socket }) => socket.write(Buffer.concat([Buffer.from([0xff, 0xff]), randomBytes(4_096)])),
  },
  "a frame without a mask": {
    ...{ closes: 1002, because: /MASK/i },
    does: ({ socket }) => socket.write(frame(1, Buffer.from("hello"), { masked: false })),
  },
  "a compressed frame, which nobody agreed on": {
    ...{ closes: 1002, because: /RSV1/i },
    does: ({ socket }) => socket.write(Buffer.from([0xc1, 0x81, 0, 0, 0, 0, 0x41])),
  },
  "payload in place of hello": {
    ...{ closes: 4408, because: /no hello arrived in time/ },
    does: ({ ws }) => ws.send(Buffer.alloc(1_000)),
  },
  "megabytes of payload in place of hello": {
    ...{ closes: 4400, because: /too much payload before the handshake/ },
    does: ({ ws }) => {
      for (let i = 0; i < 40; i++) ws.send(Buffer.alloc(64 * 1024));
    },
  },
  "thousands of small frames in place of hello": {
    ...{ closes: 4400, because: /too much payload before the handshake/ },
    does: ({ ws }) => {
      for (let i = 0; i < 5_000; i++) ws.send(Buffer.alloc(1));
    },
  },
  "a payload frame that claims 2^62 bytes": {
    ...{ closes: 1002, because: /./ },
    does: ({ socket }) =>
      socket.write(
        Buffer.concat([Buffer.from([0x82, 0xff, 0x40]), Buffer.alloc(7), Buffer.alloc(4), Buffer.alloc(64)]),
      ),
  },
  "no hello at all": { closes: 4408, because: /no hello arrived in time/, does: () => {} },
  "pings in place of hello": {
    ...{ closes: 4408, because: /no hello arrived in time/ },
    does: ({ ws }) => ws.send('{"type":"ping"}'),
  },
  "a drain in place of hello": {
    ...{ closes: 4400, because: /expected hello, not drain/ },
    does: ({ ws }) => ws.send('{"type":"drain","retryAfterMs":1}'),
  },
  "a text that is not JSON": {
    ...{ closes: 4450, because: /not JSON/ },
    does: ({ ws }) => ws.send("{"),
  },
  "a text of 9 KiB": {
    ...{ closes: 4450, because: /too long|longer than/ },
    does: ({ ws }) => ws.send(helloText({ padding: "x".repeat(9 * 1024) })),
  },
  "a text of 1 MiB": {
    ...{ closes: 1009, because: /too long|size/i },
    does: ({ ws }) => ws.send("x".repeat(1024 * 1024)),
  },
  "a text without a type": { closes: 4450, because: /type/, does: ({ ws }) => ws.send("[1,2,3]") },
  "a hello of another version": {
    ...{ closes: 4450, because: /bad hello message: version/ },
    does: ({ ws }) => ws.send(helloText({ version: 3 })),
  },
  "a hello without a name": {
    ...{ closes: 4450, because: /bad hello message: agentId/ },
    does: ({ ws }) => ws.send(helloText({ agentId: "" })),
  },
  "a hello that claims another cluster": {
    ...{
      closes: 4403,
      because: /this agent's credential belongs to cluster "default", not to "blue \[31m" \(--cluster\)/,
    },
    does: ({ ws }) => ws.send(helloText({ cluster: "blue\n\u001b[31m" })),
  },
};

for (const [what, { does, closes, because }] of Object.entries(BEFORE_HELLO)) {
  test(`an agent that sends ${what} is refused with a reason`, async () => {
    await using peer = await rawAgent(world);
    const { remote } = peer;
    does(peer);
    const { code, reason } = await within(peer.closed, 15_000, "the end of the peer");
    assert.equal(code, closes, reason);
    const line = await lineOf("agent refused", remote);
    assert.match(code === 1006 ? String(line["reason"]) : `${reason} ${line["reason"]}`, because);
    await assertOthersServed();
  });
}

// ── on a tunnel ──────────────────────────────────────────────────────────────────────────────────────────────────

/** One violation of yamux for all (shared/yamux/session-violations.test.ts), and what only a whole server sees. */
const VIOLATIONS: Readonly<Record<string, { readonly does: (peer: RawAgent) => void; readonly because: RegExp }>> = {
  "random bytes": { does: ({ ws }) => ws.send(Buffer.alloc(64, 0xa5)), because: /unknown yamux version 165/ },
  "a ping flood": {
    does: ({ ws }) => {
      const ping = header(FrameType.ping, Flag.syn, 0, 7);
      for (let i = 0; i < 60; i++) ws.send(Buffer.concat(Array.from({ length: 1_000 }, () => ping)));
    },
    because: /frames a second carry nothing|reads no answers/,
  },
  "a flood of streams that it opens": {
    does: ({ ws }) => {
      for (let i = 0; i < 60; i++) {
        const opens = (_: unknown, at: number) => header(FrameType.windowUpdate, Flag.syn, 2 * (i * 1_000 + at) + 1, 0);
        ws.send(Buffer.concat(Array.from({ length: 1_000 }, opens)));
      }
    },
    because: /opens streams again and again/,
  },
  "a control message that is none": { does: ({ ws }) => ws.send('{"type":"drain"}'), because: /bad drain message/ },
  "a flood of control messages": {
    does: ({ ws }) => {
      for (let i = 0; i < 300; i++) ws.send('{"type":"ping"}');
    },
    because: /too many control messages/,
  },
  "a reserved opcode": { does: ({ socket }) => socket.write(frame(3, Buffer.alloc(4))), because: /opcode/i },
  "half a frame, and goes": {
    does: ({ ws }) => {
      ws.send(header(FrameType.data, Flag.none, 1, 0).subarray(0, 5));
      ws.close(1000, LINK_ENDED);
    },
    because: /inside a frame/,
  },
};

for (const [what, { does, because }] of Object.entries(VIOLATIONS)) {
  test(`a tunnel whose agent sends ${what} ends, and only that one`, async () => {
    // A violation is paid for by its identity: each has its own.
    const certificate = await world.pki.clusterAuthority.issue({ cn: `who sends ${what}`, usage: "client" });
    await using peer = await rawAgent(world, certificate);
    await peer.greet();
    const { remote } = peer;
    does(peer);
    await within(peer.closed, 5_000, "the end of the tunnel");
    const line = await lineOf("tunnel lost", remote);
    assert.match(String(line["reason"]), because);
    await assertOthersServed();
  });
}

test("streams that an agent opens are reset, and its tunnel lives", async () => {
  await using peer = await rawAgent(world);
  await peer.greet();
  for (const id of [1, 3, 5, 7, 9]) peer.ws.send(header(FrameType.windowUpdate, Flag.syn, id, 0));
  await waitFor(() => Buffer.concat(peer.payload).includes(header(FrameType.windowUpdate, Flag.rst, 9, 0)));
  assert.equal(peer.ws.readyState, peer.ws.OPEN);
  assert.equal(world.server.tunnels.clusters.get("default")?.tunnels().size, 2);
  peer.ws.close(1000, LINK_ENDED);
  await peer.closed;
  await assertOthersServed();
});

function lineOf(message: string, remote: string): Promise<LogLine> {
  return waitFor(() => lines.find((line) => line.msg === message && line["remote"] === remote), { what: message });
}

/** The honest agent goes on to be picked, and the hostile one is gone from the table. */
async function assertOthersServed(): Promise<void> {
  await waitFor(() => world.server.tunnels.clusters.get("default")?.tunnels().size === 1);
  await using _next = await established(world.connect("echo"));
}

test("an agent that has sent a close frame is asked for nothing any more, although its TCP stays open", async () => {
  const certificate = await world.pki.clusterAuthority.issue({ cn: "closes and stays", usage: "client" });
  await using peer = await rawAgent(world, certificate);
  await peer.greet({ agentId: "closes-and-stays" });
  peer.socket.removeAllListeners("data").pause(); // it neither reads nor ends
  peer.socket.write(frame(0x8, Buffer.from([0x03, 0xe9])));
  await lineOf("tunnel suspended", peer.remote);
  // It would be the one with the fewest streams: half of them would be tried there first, and wait for its ACK.
  for (let count = 0; count < 6; count++) {
    await using connection = await established(world.connect("echo", { via: "tls" }));
    assert.ok(connection.answeredMs < ACK_TIMEOUT_MS, `${connection.answeredMs} ms`);
  }
});

test("an agent that says pong and reads nothing is dropped by the write deadline", async () => {
  const captured = captureLog();
  await using own = await startWorld({
    agents: 0,
    targets: ["echo"],
    log: captured.log,
    server: { keepaliveMs: 1_000 },
  });
  await using peer = await rawAgent(own);
  await peer.greet();
  peer.socket.removeAllListeners("data").pause();
  const pongs = setInterval(() => peer.ws.send(JSON.stringify({ type: "pong" })), 200);
  try {
    const suspended = () => captured.lines.find(({ msg }) => msg === "tunnel suspended");
    const line = await waitFor(suspended, { deadlineMs: 30_000, what: "the write deadline" });
    assert.match(String(line["reason"]), /the peer speaks, and has read nothing for 10 s/);
  } finally {
    clearInterval(pongs);
  }
});
