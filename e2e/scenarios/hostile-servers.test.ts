import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { test } from "node:test";
import type { WebSocket } from "ws";
import { encodeOpen } from "../../shared/wire/stream-head.ts";
import { Flag, FrameType, header } from "../../shared/yamux/frame.ts";
import { established } from "../harness/caller.ts";
import { captureLog } from "../harness/log-lines.ts";
import { type RawServerScript, rawServer, welcomeText, welcomingServer } from "../harness/raw-server.ts";
import { rawHead } from "../harness/scripted-agent.ts";
import { waitFor, within } from "../harness/wait.ts";
import { startWorld } from "../harness/world.ts";

/**
 * A server that an agent's certificate authority vouches for, and that does not keep to the rules. The agent lives,
 * says why, and tries again; the next attempt finds the real server.
 */
const HANDSHAKE_MS = 3_000;
const HASTY = { handshakeTimeoutMs: HANDSHAKE_MS, syncIntervalMs: 20, syncIntervalCapMs: 40 } as const;

const http = (head: string, body = "") => `HTTP/1.1 ${head}\r\nContent-Length: ${body.length}\r\n\r\n${body}`;

const ATTEMPTS: Readonly<Record<string, Omit<RawServerScript, "times"> & { readonly because: RegExp }>> = {
  "accepts and says nothing": { onTcp: () => {}, because: /timed out in the TLS handshake/ },
  "speaks no TLS": {
    onTcp: (socket) => socket.write("SSH-2.0-OpenSSH_9.2\r\n".repeat(100)),
    because: /\(in the TLS handshake\)/,
  },
  "closes at once": { onTcp: (socket) => socket.destroy(), because: /in the TLS handshake/ },
  "never answers the upgrade": { onTls: (socket) => socket.resume(), because: /timed out waiting for the upgrade/ },
  "answers the upgrade with noise": {
    ...{
      onTls: (socket) => socket.write(Buffer.concat([Buffer.from([0]), randomBytes(5_000)])),
      because: /\(waiting for the upgrade\)/,
    },
  },
  "answers the upgrade with a header without end": {
    onTls: (socket) => socket.write(`HTTP/1.1 200 OK\r\nX: ${"x".repeat(200_000)}`),
    because: /header|overflow/i,
  },
  "answers 200": {
    onTls: (socket) => socket.write(http("200 OK", "hi there")),
    because: /in between answered .*\(200 OK, "hi there"\)/,
  },
  redirects: {
    onTls: (socket) => socket.write(http("302 Found\r\nLocation: https://elsewhere.example/")),
    because: /sent elsewhere, to "https:\/\/elsewhere.example\/" \(302 Found\)/,
  },
  "refuses with a body without end": {
    onTls: (socket) => {
      socket.write("HTTP/1.1 418 Nope\r\nProxy-Status: culvert\r\nTransfer-Encoding: chunked\r\n\r\n");
      const chunk = `10000\r\n${"\u001b".repeat(0x10000)}\r\n`;
      const timer = setInterval(() => (socket.destroyed ? clearInterval(timer) : socket.write(chunk)), 1);
    },
    because: /\(418\)/,
  },
  "upgrades and sends noise": {
    onUpgrade: (_ws, socket) => socket.write(Buffer.concat([Buffer.from([0xff]), randomBytes(2_000)])),
    because: /RSV|opcode/i,
  },
  "upgrades and never says welcome": { onUpgrade: () => {}, because: /timed out waiting for welcome/ },
  "sends payload before its welcome": {
    onUpgrade: (ws) => {
      for (let i = 0; i < 40; i++) ws.send(Buffer.alloc(64 * 1024));
    },
    because: /too much payload before the handshake/,
  },
  "welcomes in no JSON": { onUpgrade: (ws) => ws.send("welcome!"), because: /not JSON/ },
  "welcomes with a megabyte": { onUpgrade: (ws) => ws.send("x".repeat(1_000_000)), because: /size|too long/i },
  "welcomes with a window of 2 bytes": {
    ...{ onUpgrade: (ws) => ws.send(welcomeText({ initialWindow: 2 })), because: /initialWindow/ },
  },
  "welcomes with a window of 4 GiB and a half": {
    ...{ onUpgrade: (ws) => ws.send(welcomeText({ initialWindow: 2 ** 33 })), because: /initialWindow/ },
  },
  "welcomes with a keepalive of nothing": {
    ...{ onUpgrade: (ws) => ws.send(welcomeText({ keepaliveMs: 0 })), because: /keepaliveMs/ },
  },
  "answers hello with drain": {
    onUpgrade: (ws) => ws.send('{"type":"drain","retryAfterMs":1}'),
    because: /answered hello with drain/,
  },
  "closes with a code of its own": {
    ...{ onUpgrade: (ws) => ws.close(4499, "no\u0007 room"), because: /\(4499\): no room/ },
  },
};

for (const [what, { because, ...script }] of Object.entries(ATTEMPTS)) {
  test(`a server that ${what}: the agent says why, and tries again until one is good`, async () => {
    const { log, lines } = captureLog("debug");
    await using world = await startWorld({ targets: ["echo"], agents: 0, log });
    await using hostile = await rawServer(world, { times: 2, ...script });
    const agent = await world.startAgent({ proxyServerPort: hostile.port, ...HASTY }, { wait: false });
    await within(agent.whenConnected(), 20_000, "the real server to be found");
    assert.equal(hostile.accepted, 3);
    const failed = lines.filter(({ msg }) => msg === "uplink attempt failed");
    assert.equal(failed.length, 2);
    for (const { reason } of failed) assert.match(String(reason), because);
    for (const { reason } of failed) assert.match(String(reason), /^[\x20-\x7e]{1,1100}$/, "one printable line");
    await using _connection = await established(world.connect("echo"));
  });
}

const SYN = (id: number, first: Buffer = Buffer.alloc(0)) =>
  Buffer.concat([header(FrameType.data, Flag.syn, id, first.length), first]);

const VIOLATIONS: Readonly<Record<string, { readonly does: (ws: WebSocket) => void; readonly because: RegExp }>> = {
  "sends random bytes": { does: (ws) => ws.send(Buffer.alloc(64, 0xa5)), because: /unknown yamux version 165/ },
  "sends more than the window": {
    does: (ws) => {
      ws.send(SYN(2));
      for (let i = 0; i < 4; i++) {
        ws.send(Buffer.concat([header(FrameType.data, Flag.none, 2, 30_000), Buffer.alloc(30_000)]));
      }
    },
    because: /./,
  },
  "floods with pings": {
    does: (ws) => {
      const pings = Buffer.concat(Array.from({ length: 1_000 }, () => header(FrameType.ping, Flag.syn, 0, 7)));
      for (let i = 0; i < 60; i++) ws.send(pings);
    },
    because: /frames a second carry nothing|reads no answers/,
  },
  "sends control messages that are none": { does: (ws) => ws.send('{"type":"drain"}'), because: /bad drain message/ },
};

for (const [what, { does, because }] of Object.entries(VIOLATIONS)) {
  test(`a server that welcomes and then ${what}: the tunnel ends, the agent lives and comes back`, async () => {
    const { log, lines } = captureLog();
    await using world = await startWorld({ targets: ["echo"], agents: 0, log });
    const onUpgrade = (ws: WebSocket) => {
      ws.once("message", () => {
        ws.send(welcomeText());
        does(ws);
      });
    };
    await using hostile = await rawServer(world, { times: 1, onUpgrade });
    const agent = await world.startAgent({ proxyServerPort: hostile.port, ...HASTY }, { wait: false });
    const lost = await waitFor(() => lines.find(({ msg }) => msg === "uplink lost"), { what: "the end of the tunnel" });
    assert.match(String(lost["reason"]), because);
    await within(agent.whenConnected(), 20_000, "the real server to be found");
    await using _connection = await established(world.connect("echo"));
  });
}

const REQUESTS: Readonly<Record<string, { readonly first: Buffer; readonly answer: RegExp }>> = {
  "with a head that is no JSON": { first: rawHead("{{"), answer: /^{"error":"internal","detail":"[\x20-\x7e]+"}$/ },
  "with a head of no bytes": { first: rawHead("", 0), answer: /^{"error":"internal",/ },
  "with a head that claims 64 KiB": { first: rawHead("{", 0xffff), answer: /^{"error":"internal",/ },
  "of an unknown kind": { first: rawHead('{"kind":"shell","target":"a:1"}'), answer: /^{"error":"forbidden",/ },
  "for a target with a line break": {
    ...{ first: rawHead('{"target":"a\\r\\nb:1"}'), answer: /^{"error":"(internal|bad_target)",/ },
  },
  "for the metadata of its cloud": {
    first: encodeOpen({ kind: "connect", target: { host: "169.254.169.254", port: 80 }, timeoutMs: 1_000, id: "x" }),
    answer: /^{"error":"forbidden",/,
  },
  "with half a head and the end": { first: rawHead("{", 100), answer: /^(?:{"error":"[a-z_]+",.*)?$/ },
};

test("a server that opens streams of all sorts gets an answer to each, and the tunnel lives", async () => {
  await using world = await startWorld({ agents: 0 });
  await using hostile = await welcomingServer(world);
  const { server, payload } = hostile;
  const agent = await world.startAgent({ proxyServerPort: server.port });
  const requests = Object.values(REQUESTS);
  requests.forEach(({ first }, index) => {
    const id = 2 * (index + 1);
    hostile.send(Buffer.concat([SYN(id, first), header(FrameType.windowUpdate, Flag.fin, id, 0)]));
  });
  const ended = (id: number) => Buffer.concat(payload).includes(header(FrameType.windowUpdate, Flag.fin, id, 0));
  await waitFor(() => requests.every((_, index) => ended(2 * (index + 1))), { what: "every stream to end" });
  await waitFor(() => agent.streamCount === 0);
  const answers = answersIn(Buffer.concat(payload));
  requests.forEach(({ answer }, index) => {
    assert.match(answers.get(2 * (index + 1)) ?? "", answer, Object.keys(REQUESTS)[index]);
  });
  assert.equal(agent.connected, true);
  assert.equal(server.accepted, 1);
});

test("a server that opens more streams than the agent may carry: those beyond are reset, the others live", async () => {
  await using world = await startWorld({ agents: 0 });
  await using hostile = await welcomingServer(world);
  const { server, payload } = hostile;
  const agent = await world.startAgent({ proxyServerPort: server.port, maxStreams: 50 });
  // Heads that never become whole, so that each stream stays.
  for (let i = 1; i <= 60; i++) hostile.send(SYN(2 * i, Buffer.alloc(1)));
  const isReset = (id: number) => Buffer.concat(payload).includes(header(FrameType.windowUpdate, Flag.rst, id, 0));
  await waitFor(() => isReset(120));
  assert.equal(agent.streamCount, 50);
  assert.equal(isReset(100), false);
  assert.equal(isReset(102), true);
  assert.equal(agent.connected, true);
});

/** Answers by stream: data frames put together, without the length in front. */
function answersIn(bytes: Buffer): Map<number, string> {
  const parts = new Map<number, Uint8Array>();
  for (let at = 0; at < bytes.length; ) {
    const isData = bytes[at + 1] === FrameType.data;
    const id = bytes.readUInt32BE(at + 4);
    const length = isData ? bytes.readUInt32BE(at + 8) : 0;
    const body = bytes.subarray(at + 12, at + 12 + length);
    if (isData) parts.set(id, Buffer.concat([parts.get(id) ?? Buffer.alloc(0), body]));
    at += 12 + length;
  }
  return new Map([...parts].map(([id, body]) => [id, Buffer.from(body).toString("utf8", 2)]));
}
