import assert from "node:assert/strict";
import { once } from "node:events";
import { createServer as createHttpServer } from "node:http";
import { createServer, type Server, type Socket } from "node:net";
import { type TestContext, test } from "node:test";
import { listening } from "../../shared/basics/testing/wait.ts";
import { askStatus, NoStatus } from "./ask.ts";

async function addressOf(t: TestContext, server: Server): Promise<{ host: string; port: number }> {
  const sockets = new Set<Socket>();
  server.on("connection", (socket: Socket) => sockets.add(socket));
  t.after(() => {
    for (const socket of sockets) socket.destroy();
  });
  return { host: "127.0.0.1", port: await listening(t, server) };
}

function saying(t: TestContext, status: number, body: string) {
  const server = createHttpServer((request, response) => {
    response.writeHead(request.url === "/status" ? status : 404).end(body);
  });
  return addressOf(t, server);
}

test("what a server says is handed on, also what only a later version says", async (t) => {
  const said = { serverId: "srv-1", clusters: [], later: { than: "us" } };
  assert.deepEqual(await askStatus(await saying(t, 200, JSON.stringify(said))), { kind: "server", all: said });
});

const OTHERS: ReadonlyArray<readonly [sentence: string, status: number, body: string, says: RegExp]> = [
  ["a server's health port", 404, '{"message":"Not Found"}', /not as an --admin-port of culvert does \(HTTP 404/],
  ["one that has other names", 421, "not here", /HTTP 421\): ask it by an IP address .*--admin-allowed-hosts$/],
  ["any web server", 200, "<html>", /not as an --admin-port of culvert does \(HTTP 200/],
  ["a kind of a later version", 200, '{"kind":"bridge"}', /not as an --admin-port of culvert does/],
  ["JSON that is no object", 200, "null", /not as an --admin-port of culvert/],
  ["a failing one", 500, '{"serverId":"x","clusters":[]}', /HTTP 500/],
];

for (const [sentence, status, body, says] of OTHERS) {
  test(`${sentence} is named as what it is`, async (t) => {
    await assert.rejects(askStatus(await saying(t, status, body)), { message: says });
  });
}

test("where nobody listens, the flags that decide it are named", async (t) => {
  const server = createServer();
  const address = await addressOf(t, server);
  server.close();
  await once(server, "close");
  await assert.rejects(askStatus(address), {
    message: /^127\.0\.0\.1:\d+ refuses the connection: .*--admin-port \(an agent's: --admin-server-port\)\?$/,
  });
});

test("who takes the connection and says nothing, or never ends, is not waited for", async (t) => {
  const silent = await addressOf(t, createServer());
  await assert.rejects(askStatus(silent, 50), {
    message: /did not answer within 0\.05 s: .*the process hangs, or has no file/,
  });
  const endless = createHttpServer((_request, response) => void response.writeHead(200).write("{"));
  await assert.rejects(askStatus(await addressOf(t, endless), 200), { message: /did not answer within 0\.2 s: / });
});

test("who closes the connection without a word may be a server without file descriptors, and a port of another kind", async (t) => {
  const closing = createServer((socket) => socket.destroy());
  await assert.rejects(askStatus(await addressOf(t, closing)), {
    message: /closes the connection without an answer: is that the admin port .* no file descriptors left/,
  });
});

test("a port that does not speak HTTP is said to be another one", async (t) => {
  const ssh = createServer((socket) => socket.on("error", () => {}).end("SSH-2.0-OpenSSH\r\n"));
  await assert.rejects(askStatus(await addressOf(t, ssh)), { message: /does not speak plain HTTP/ });
});

test("who stops asking does not wait for the answer", async (t) => {
  const stop = new AbortController();
  const silent = createServer(() => stop.abort());
  await assert.rejects(askStatus(await addressOf(t, silent), 3_600_000, stop.signal), NoStatus);
});
