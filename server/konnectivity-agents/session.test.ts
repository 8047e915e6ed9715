import assert from "node:assert/strict";
import { once } from "node:events";
import { type ClientHttp2Session, connect } from "node:http2";
import { test } from "node:test";
import { connect as dialTls, type TLSSocket } from "node:tls";
import { until } from "../../shared/basics/testing/wait.ts";
import { pki, start, type TestServer } from "../testing/server.ts";
import { StockAgent } from "./testing/stock-agent.ts";

// Attacks of a hostile peer with an HTTP/2 session at the agents' port.

const PREFACE = Buffer.from("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "latin1");
const [SETTINGS, PING, CONTINUATION, HEADERS] = [4, 6, 9, 1] as const;
const CALL = {
  ...{ ":method": "POST", ":path": "/AgentService/Connect", "content-type": "application/grpc" },
  agentid: "stock",
};

function frame(type: number, flags: number, stream: number, payload: Buffer = Buffer.alloc(0)): Buffer {
  const head = Buffer.alloc(9);
  head.writeUIntBE(payload.length, 0, 3);
  head[3] = type;
  head[4] = flags;
  head.writeUInt32BE(stream, 5);
  return Buffer.concat([head, payload]);
}

async function peerOf(server: TestServer, by: object = pki.agent): Promise<TLSSocket> {
  const port = server.addresses.agents?.port ?? 0;
  const socket = dialTls({ host: "127.0.0.1", port, ca: pki.ca.cert, ALPNProtocols: ["h2"], ...by });
  socket.on("error", () => {}).resume();
  await once(socket, "secureConnect");
  return socket;
}

function sessionOn(socket: TLSSocket): ClientHttp2Session {
  return connect("https://server", { createConnection: () => socket }).on("error", () => {});
}

/** Floods until the server ends the connection, while an agent beside it serves. */
for (const [what, piece] of [
  ["PING", frame(PING, 0, 0, Buffer.alloc(8))],
  ["SETTINGS", frame(SETTINGS, 0, 0)],
  [
    "CONTINUATION",
    Buffer.concat([frame(HEADERS, 0, 1, Buffer.from([0x82])), ...Array(64).fill(frame(CONTINUATION, 0, 1))]),
  ],
] as const) {
  test(`a flood of ${what} ends the session that sends it, and no other`, async () => {
    await using server = await start();
    const agent = await (await StockAgent.connect(server)).welcomed();
    const socket = await peerOf(server);
    socket.write(Buffer.concat([PREFACE, frame(SETTINGS, 0, 0)]));
    const flood = Buffer.concat(Array(500).fill(piece));
    const timer = setInterval(() => socket.writableNeedDrain || socket.write(flood), 1);
    await until(() => socket.destroyed);
    clearInterval(timer);
    assert.equal(agent.isClosed, false);
    const ended = /^culvert_server_http2_connections_ended_total\{listener="agents",reason="flood"\} 1$/m;
    await until(async () => ended.test(await server.metrics.registry.metrics()));
    agent.leave();
  });
}

test("pings that wait for each answer, as grpc-go's while it receives, are no flood, however quick they are", async () => {
  await using server = await start();
  const agent = await (await StockAgent.connect(server)).welcomed();
  for (let sent = 0; sent < 10_000; sent++) await new Promise((answered) => agent.session.ping(answered));
  assert.equal(agent.isClosed, false);
  agent.leave();
});

test("a peer that makes no call is ended after --handshake-timeout", async () => {
  await using server = await start({ handshakeTimeoutMs: 300 });
  const session = sessionOn(await peerOf(server));
  await until(() => session.destroyed);
});

test("a peer without a credential cannot make the server hold what it sends, nor make further calls", async () => {
  await using server = await start();
  const session = sessionOn(await peerOf(server, {}));
  const call = session.request(CALL);
  call.on("error", () => {});
  let taken = 0;
  for (const bytes of [64 * 1024, 1024 * 1024]) call.write(Buffer.alloc(bytes), (error) => (error ? 0 : taken++));
  const another = session.request(CALL);
  another.on("error", () => {});
  await until(() => session.destroyed);
  assert.ok(taken <= 1, "one window at most");
});

test("too many headers make no call", async () => {
  await using server = await start();
  const session = sessionOn(await peerOf(server));
  const many = Object.fromEntries(Array.from({ length: 100 }, (_, index) => [`x-${index}`, "1"]));
  const call = session.request({ ...CALL, ...many });
  call.on("error", () => {});
  await until(() => call.closed);
  assert.equal(server.lines.filter(({ msg }) => msg === "tunnel opened").length, 0);
  session.destroy();
});
