import assert from "node:assert/strict";
import { once } from "node:events";
import { Agent, createServer, type IncomingMessage, type RequestListener, request } from "node:http";
import { type AddressInfo, connect, createServer as createTcpServer, type Socket } from "node:net";
import { text } from "node:stream/consumers";
import { type TestContext, test } from "node:test";
import { listening, until } from "../../shared/basics/testing/wait.ts";
import { type RunningSidecar, startHttp } from "../harness/sidecar.ts";
import { startWorld } from "../harness/world.ts";

/** Much more than all buffers on the way hold, bytes. */
const UPLOAD = 64 * 1024 * 1024;

/** A target of http:// URLs; returns the beginning of its URLs. */
async function httpTarget(t: TestContext, listener: RequestListener): Promise<string> {
  const server = createServer(listener);
  server.on("checkContinue", (asked, answer) => {
    answer.writeContinue();
    listener(asked, answer);
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  t.after(() => server.close());
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
}

/** A request for a whole URL. */
function ask(proxy: RunningSidecar, url: string, options: object = {}) {
  return request({ host: "127.0.0.1", port: proxy.port, path: url, agent: false, ...options });
}

async function answerOf(asked: ReturnType<typeof request>): Promise<IncomingMessage> {
  const [answer] = await once(asked, "response", { signal: AbortSignal.timeout(20_000) });
  return answer as IncomingMessage;
}

test("fields of one connection stay on it, others are passed on, and Via is added", async (t) => {
  const seen: IncomingMessage[] = [];
  const url = await httpTarget(t, (asked, answer) => {
    seen.push(asked);
    answer.setHeader("Connection", "X-Secret, close");
    answer.setHeader("X-Secret", "1");
    answer.setHeader("Set-Cookie", ["a=1", "b=2"]);
    answer.setHeader("Keep-Alive", "timeout=1");
    answer.end("hello");
  });
  await using world = await startWorld();
  await using proxy = await startHttp(world);
  const headers = {
    ...{ Connection: "x-private, content-length", "X-Private": "1", "X-Kept": ["1", "2"], TE: "trailers" },
    ...{ "Proxy-Authorization": "Basic eDp5", "Proxy-Connection": "keep-alive", Via: "1.0 first", Host: "other" },
  };
  const asked = ask(proxy, `${url}/path?query=|`, { headers });
  asked.end();
  const answer = await answerOf(asked);
  assert.equal(await text(answer), "hello");
  const [{ url: path, headers: fields } = { url: "", headers: {} as never }] = seen;
  assert.equal(path, "/path?query=|");
  assert.deepEqual(fields, {
    ...{ "x-kept": "1, 2", via: "1.0 first, 1.1 culvert", host: url.slice("http://".length), connection: "close" },
  });
  assert.deepEqual(answer.headers["set-cookie"], ["a=1", "b=2"]);
  assert.equal(answer.headers.via, "1.1 culvert");
  assert.equal(answer.headers["x-secret"], undefined);
});

test("a body with another transfer coding than chunked is refused", async () => {
  await using world = await startWorld();
  await using proxy = await startHttp(world);
  const asked = ask(proxy, "http://127.0.0.1:1/", {
    method: "POST",
    headers: { "Transfer-Encoding": "gzip, chunked" },
  });
  asked.on("error", () => {}).end("hi");
  const answer = await answerOf(asked);
  assert.equal(answer.statusCode, 501);
  assert.match(await text(answer), /^Transfer-Encoding has another coding than chunked/);
});

test("requests follow one another on one connection, with bodies of each framing", async (t) => {
  const url = await httpTarget(t, (asked, answer) => void asked.pipe(answer));
  await using world = await startWorld();
  await using proxy = await startHttp(world);
  const agent = new Agent({ keepAlive: true, maxSockets: 1 });
  t.after(() => agent.destroy());
  const sockets = new Set<unknown>();
  for (const [method, body, headers] of [
    ["POST", "with a length", { "Content-Length": "13" }],
    ["POST", "chunked", {}],
    ["GET", "chunked", { "Transfer-Encoding": "chunked" }],
    ["DELETE", "with a length", { "Content-Length": "13" }],
    ["GET", "", {}],
    ["POST", "", { "Content-Length": "0" }],
  ] as const) {
    const asked = ask(proxy, `${url}/`, { method, headers, agent });
    asked.end(body);
    const answer = await answerOf(asked);
    sockets.add(answer.socket);
    assert.equal(await text(answer), body, `${method} ${body}`);
  }
  assert.equal(sockets.size, 1);
});

test("trailers are passed on in both directions", async (t) => {
  const url = await httpTarget(t, async (asked, answer) => {
    await text(asked);
    answer.setHeader("Trailer", "X-Sum");
    answer.write("hello");
    answer.addTrailers({ "X-Sum": String(asked.trailers["x-count"]) });
    answer.end();
  });
  await using world = await startWorld();
  await using proxy = await startHttp(world);
  const asked = ask(proxy, url, { method: "POST", headers: { Trailer: "X-Count" } });
  asked.write("body");
  asked.addTrailers({ "X-Count": "4" });
  asked.end();
  const answer = await answerOf(asked);
  assert.equal(await text(answer), "hello");
  assert.equal(answer.trailers["x-sum"], "4");
});

test("bodies stream both ways at once, and 100 (Continue) is the target's", async (t) => {
  const url = await httpTarget(t, (asked, answer) => {
    answer.flushHeaders();
    asked.on("data", (chunk) => answer.write(`${chunk}!`));
    asked.on("end", () => answer.end());
  });
  await using world = await startWorld();
  await using proxy = await startHttp(world);
  const asked = ask(proxy, url, { method: "POST", headers: { Expect: "100-continue" } });
  asked.flushHeaders();
  const [answer] = await Promise.all([answerOf(asked), once(asked, "continue")]);
  let got = "";
  answer.on("data", (chunk) => (got += chunk));
  for (const piece of ["one", "two", "three"]) {
    asked.write(piece);
    await until(() => got.endsWith(`${piece}!`));
  }
  asked.end();
  await once(answer, "end");
  assert.equal(got, "one!two!three!");
});

test("an answer that ends too early is cut for the client, too", async (t) => {
  const url = await httpTarget(t, (_asked, answer) => {
    answer.write("half");
    setImmediate(() => answer.destroy());
  });
  await using world = await startWorld();
  await using proxy = await startHttp(world);
  const asked = ask(proxy, url);
  asked.end();
  await assert.rejects(text(await answerOf(asked)));
});

test("a client that leaves in the middle ends its request at the target", async (t) => {
  let ended = false;
  const url = await httpTarget(t, (_asked, answer) => {
    answer.write("half");
    answer.on("close", () => (ended = true));
  });
  await using world = await startWorld();
  await using proxy = await startHttp(world);
  const asked = ask(proxy, url);
  asked.on("error", () => {}).end();
  await answerOf(asked);
  asked.destroy();
  await until(() => ended);
});

test("what is no request of a proxy is refused with a sentence", async () => {
  await using world = await startWorld({ agents: 0 });
  await using proxy = await startHttp(world);
  for (const [first, answer] of [
    ["GET / HTTP/1.1", /^HTTP\/1\.1 400 this is an HTTP proxy/],
    ["GET https://a/ HTTP/1.1", /^HTTP\/1\.1 400 this is an HTTP proxy/],
    ["GET http:///a HTTP/1.1", /^HTTP\/1\.1 400 /],
    ["CONNECT a HTTP/1.1", /^HTTP\/1\.1 400 .*no port/],
    ["CONNECT a:0 HTTP/1.1", /^HTTP\/1\.1 400 .*port 0/],
    ["nonsense", /^HTTP\/1\.1 400 /],
  ] as const) {
    const socket = connect({ host: "127.0.0.1", port: proxy.port });
    socket.end(`${first}\r\nHost: a\r\nConnection: close\r\n\r\n`);
    assert.match(await text(socket), answer, first);
  }
});

test("a CONNECT carries both directions, each with an end of its own, and the client's early bytes", async () => {
  await using world = await startWorld({ targets: ["echo"] });
  await using proxy = await startHttp(world);
  const socket = connect({ host: "127.0.0.1", port: proxy.port, allowHalfOpen: true });
  socket.write(`CONNECT 127.0.0.1:${world.targets.echo.port} HTTP/1.1\r\nHost: a\r\n\r\nearly`);
  socket.end(" and the end");
  assert.equal(await text(socket), "HTTP/1.1 200 Connection Established\r\n\r\nearly and the end");
});

for (const [how, close] of [
  ["ends its side", (socket: Socket) => void socket.end()],
  ["closes", (socket: Socket) => socket.destroySoon()],
] as const) {
  test(`a target that answers in the middle of an upload and ${how}: the client has its answer, and the rest is dropped`, async (t) => {
    const server = createTcpServer({ allowHalfOpen: true }, (socket) => {
      socket.on("error", () => {});
      socket.once("data", () => {
        socket.pause();
        socket.write("HTTP/1.1 413 Too Much\r\nContent-Length: 5\r\n\r\nheavy");
        close(socket);
      });
      t.after(() => void socket.destroy());
    });
    const port = await listening(t, server);
    await using world = await startWorld();
    await using proxy = await startHttp(world);
    const agent = new Agent({ keepAlive: true, maxSockets: 1 });
    t.after(() => agent.destroy());
    const headers = { "Content-Length": UPLOAD };
    const asked = ask(proxy, `http://127.0.0.1:${port}/`, { method: "POST", headers, agent });
    asked.write(Buffer.alloc(1_000));
    const answer = await answerOf(asked);
    assert.deepEqual([answer.statusCode, await text(answer)], [413, "heavy"]);
    asked.end(Buffer.alloc(UPLOAD - 1_000));
    await once(asked, "finish", { signal: AbortSignal.timeout(20_000) });
    const next = ask(proxy, `http://127.0.0.1:${port}/`, { agent });
    next.end();
    assert.equal((await answerOf(next)).statusCode, 413, "the connection of the client is good for another request");
  });
}
