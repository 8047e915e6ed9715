import assert from "node:assert/strict";
import { once } from "node:events";
import { copyFileSync, readFileSync } from "node:fs";
import { createServer, type Server } from "node:http";
import { type AddressInfo, connect, createServer as createTcpServer } from "node:net";
import { type TestContext, test } from "node:test";
import { createServer as createTlsServer, type TlsOptions } from "node:tls";
import { createPki } from "../../cli/pki/pki.ts";
import { until } from "../../shared/basics/testing/wait.ts";
import { UpstreamServer } from "../../sidecars/upstream-server.ts";
import { curl } from "../harness/curl.ts";
import { startRelay } from "../harness/faults.ts";
import { serverFiles } from "../harness/pki-files.ts";
import { callerFiles, startHttp, startSocks5 } from "../harness/sidecar.ts";
import { startSlowLine } from "../harness/slow-line.ts";
import { tcpTarget } from "../harness/targets/tcp.ts";
import { TempDir } from "../harness/temp.ts";
import { startWorld, type World } from "../harness/world.ts";

const HELLO = "hello from the target\n";

type HttpWorld = World<"http">;

const hello = (proxy: { readonly address: string }, world: HttpWorld): Promise<string> =>
  curl("--socks5-hostname", proxy.address, `http://127.0.0.1:${world.targets.http.port}/`);

const callersPort = (world: Pick<World, "server">): number => world.server.addresses.callers?.port ?? 0;

test("of several servers the next one serves while one is away, or has no agent", async () => {
  await using world = await startWorld({ targets: ["http"] });
  const full = world.server;
  const port = callersPort(world);
  const empty = await world.startServer({ serverId: "empty", udsName: "", agentWaitMs: 20 });
  for (const first of ["127.0.0.1:1", `127.0.0.1:${empty.addresses.callers?.port}`]) {
    await using proxy = await startSocks5(world, { server: [first, `127.0.0.1:${port}`] });
    assert.equal(await hello(proxy, world), HELLO);
  }
  full.destroy(new Error("the test ends"));
});

test("after a restart of the server the next connection works, in less than two seconds", async () => {
  await using world = await startWorld({ targets: ["http"] });
  const port = callersPort(world);
  const agentPort = world.server.addresses.agents?.port ?? 0;
  await using proxy = await startSocks5(world);
  assert.equal(await hello(proxy, world), HELLO);
  world.server.destroy(new Error("it restarts"));
  await until(() => !proxy.sidecar.hasSession);
  await assert.rejects(hello(proxy, world));
  await world.startServer({ serverPort: port, agentPort });
  await world.agents[0]?.whenConnected();
  const begin = performance.now();
  assert.equal(await hello(proxy, world), HELLO);
  assert.ok(performance.now() - begin < 2_000);
});

test("a server that drains ends its session by GOAWAY, and the next connection goes to another one", async () => {
  await using world = await startWorld({ targets: ["http"] });
  const first = world.server;
  const second = await world.startServer({ serverId: "second", udsName: "" });
  await world.startAgent({ agentId: "of-second" });
  const servers = [first, second].map(({ addresses }) => `127.0.0.1:${addresses.callers?.port}`);
  await using proxy = await startSocks5(world, { server: servers });
  assert.equal(await hello(proxy, world), HELLO);
  const closing = first.close();
  assert.equal(await hello(proxy, world), HELLO);
  await closing;
});

test("after a restart of the agent the next connection works", async () => {
  await using world = await startWorld({ targets: ["http"] });
  await using proxy = await startSocks5(world);
  assert.equal(await hello(proxy, world), HELLO);
  world.agents.pop()?.destroy(new Error("it restarts"));
  await world.startAgent();
  assert.equal(await hello(proxy, world), HELLO);
});

test("a certificate that has changed is used for new connections", async () => {
  using folder = new TempDir();
  await using world = await startWorld({ targets: ["http"] });
  const { caCert, cert, key } = callerFiles(world);
  const files = { caCert: folder.file("ca"), cert: folder.file("cert"), key: folder.file("key") };
  for (const [from, to] of [
    [caCert, files.caCert],
    [cert, files.cert],
    [key, files.key],
  ] as const) {
    copyFileSync(from, to);
  }
  await using proxy = await startSocks5(world, files);
  assert.equal(await hello(proxy, world), HELLO);
  using other = new TempDir();
  await createPki({ dir: other.path });
  copyFileSync(other.file("client.key"), files.key);
  copyFileSync(other.file("client.crt"), files.cert);
  await until(async () => (await hello(proxy, world).catch(() => "refused")) === "refused");
});

/** A server that speaks CONNECT in HTTP/1.1 alone, over mutual TLS, and answers as its target would. */
async function oldServer(t: TestContext, world: Pick<World, "dir">, tls: TlsOptions): Promise<string> {
  const { serverCert, serverKey, serverCaCert } = serverFiles(world.dir.path);
  const [cert, key, ca] = [serverCert, serverKey, serverCaCert].map((path) => readFileSync(path));
  const http: Server = createServer();
  http.on("connect", (asked, socket) => {
    if (asked.url?.endsWith(":1")) {
      socket.end("HTTP/1.1 502 nobody listens there\r\nContent-Length: 0\r\n\r\n");
      return;
    }
    const [host, port] = (asked.url ?? "").split(":");
    const target = connect({ host: host ?? "", port: Number(port), allowHalfOpen: true });
    socket.on("error", () => {});
    target.on("error", () => {});
    socket.write("HTTP/1.1 200 Connection established\r\n\r\n");
    target.pipe(socket).pipe(target);
  });
  http.on("clientError", (_error, socket) => socket.end("HTTP/1.1 400 Bad Request\r\n\r\n"));
  const options = { cert: cert as Buffer, key: key as Buffer, ca: ca as Buffer };
  const server = createTlsServer({ ...options, requestCert: true, allowHalfOpen: true, ...tls }, (socket) => {
    http.emit("connection", socket);
  });
  server.on("tlsClientError", () => {});
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  t.after(() => server.close());
  return `127.0.0.1:${(server.address() as AddressInfo).port}`;
}

const VARIETIES: Readonly<Record<string, TlsOptions>> = {
  "refuses HTTP/2 in ALPN, as Go's,": { ALPNProtocols: ["http/1.1"] },
  "knows nothing of ALPN": {},
  "agrees on HTTP/2 and does not speak it, as a culvert server of before,": {
    ALPNCallback: ({ protocols }) => protocols[0],
  },
};

for (const [what, tls] of Object.entries(VARIETIES)) {
  test(`a server that ${what} is asked in HTTP/1.1`, async (t) => {
    await using world = await startWorld({ targets: ["http"], agents: 0 });
    const server = [await oldServer(t, world, tls)];
    await using proxy = await startSocks5(world, { server });
    for (let times = 0; times < 3; times++) assert.equal(await hello(proxy, world), HELLO);
    await using http = await startHttp(world, { server });
    const head = await curl("-i", "-x", `http://${http.address}`, "http://127.0.0.1:1/");
    assert.match(head, /^HTTP\/1\.1 502 nobody listens there/);
  });
}

for (const way of ["over HTTP/2", "over HTTP/1.1", "directly"] as const) {
  test(`${way}: a target that ends its side first still gets what its client sends`, async (t) => {
    let got = "";
    await using target = await tcpTarget((socket) => {
      socket.end("bye");
      socket.on("data", (chunk) => (got += chunk));
    });
    await using world = await startWorld({ agents: way === "over HTTP/2" ? 1 : 0, server: { agentWaitMs: 20 } });
    const server = { server: [await oldServer(t, world, { ALPNProtocols: ["http/1.1"] })] };
    const more = { "over HTTP/2": {}, "over HTTP/1.1": server, directly: { directFallback: true } };
    await using proxy = await startHttp(world, more[way]);
    const socket = connect({ host: "127.0.0.1", port: proxy.port, allowHalfOpen: true });
    socket.write(`CONNECT ${target.address} HTTP/1.1\r\nHost: a\r\n\r\n`);
    let answer = "";
    socket.on("data", (chunk) => (answer += chunk));
    await once(socket, "end");
    assert.match(answer, /^HTTP\/1\.1 200 .*\r\n\r\nbye$/);
    socket.end("and thanks");
    await until(() => got === "and thanks");
  });
}

test("a server that takes connections and is silent costs three seconds, and then the next one is asked", async (t) => {
  const silent = createTcpServer((socket) => socket.on("error", () => {}).resume());
  await new Promise<void>((resolve) => silent.listen(0, "127.0.0.1", resolve));
  t.after(() => silent.close());
  await using world = await startWorld({ targets: ["http"] });
  const server = [`127.0.0.1:${(silent.address() as AddressInfo).port}`, `127.0.0.1:${callersPort(world)}`];
  await using proxy = await startSocks5(world, { server });
  assert.equal(await hello(proxy, world), HELLO);
  const begin = performance.now();
  assert.equal(await hello(proxy, world), HELLO);
  assert.ok(performance.now() - begin < 1_000, "the silent one is asked last for a while");
});

/** Silence of 500 ms ends the session. */
const PING_MS = 200;

function upstreamOf(world: Pick<World, "dir" | "server">, port: number, pingMs = PING_MS): UpstreamServer {
  const { caCert, cert, key } = callerFiles(world);
  const tls = { ca: readFileSync(caCert, "utf8"), cert: readFileSync(cert, "utf8"), key: readFileSync(key, "utf8") };
  return new UpstreamServer({ host: "127.0.0.1", port }, () => tls, pingMs);
}

test("a session lives as long as bytes come, although the answer to a ping waits behind them for seconds", async () => {
  await using world = await startWorld({ targets: ["source"] });
  const behind = { host: "127.0.0.1", port: callersPort(world) };
  await using line = await startSlowLine(behind, { bytesPerSecond: 20_000, queueBytes: 64 * 1024, rttMs: 20 });
  const upstream = upstreamOf(world, line.port);
  const stream = await upstream.open(world.targets.source.address, AbortSignal.timeout(20_000));
  let bytes = 0;
  stream.on("data", (chunk: Buffer) => (bytes += chunk.length));
  await until(() => bytes > 40_000 || stream.destroyed);
  assert.ok(!stream.destroyed, `it has ended after ${bytes} bytes`);
  upstream.destroy();
});

test("a session lives as long as the server gets bytes, although a dozen uploads share a line of 80 kB/s", async () => {
  await using world = await startWorld({ targets: ["sink"] });
  const behind = { host: "127.0.0.1", port: callersPort(world) };
  await using line = await startSlowLine(behind, { bytesPerSecond: 80_000, queueBytes: 64 * 1024, rttMs: 20 });
  // Silence of 7.5 s ends the session. Windows of streams alone would be given back after 19 s.
  const pingMs = 3_000;
  const upstream = upstreamOf(world, line.port, pingMs);
  const open = () => upstream.open(world.targets.sink.address, AbortSignal.timeout(20_000));
  const streams = await Promise.all(Array.from({ length: 12 }, open));
  for (const stream of streams) stream.write(Buffer.alloc(256 * 1024));
  await until(() => line.bytes.forward > 800_000 || streams.some(({ destroyed }) => destroyed));
  const ended = streams.filter(({ destroyed }) => destroyed).length;
  assert.equal(ended, 0, `${ended} have ended after ${line.bytes.forward} bytes`);
  upstream.destroy();
});

test("a session ends when no byte comes any more", async () => {
  await using world = await startWorld({ targets: ["echo"] });
  await using relay = await startRelay({ host: "127.0.0.1", port: callersPort(world) });
  const upstream = upstreamOf(world, relay.port);
  const stream = await upstream.open(world.targets.echo.address, AbortSignal.timeout(20_000));
  relay.drop();
  await until(() => stream.destroyed && !upstream.hasSession);
});
