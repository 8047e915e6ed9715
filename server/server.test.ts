import assert from "node:assert/strict";
import { once } from "node:events";
import { mkdtemp, rm, stat, writeFile } from "node:fs/promises";
import { get } from "node:http";
import { connect as dialPlain } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Readable } from "node:stream";
import { after, before, test } from "node:test";
import { connect as dialTls, type TLSSocket } from "node:tls";
import { dialLink } from "../shared/link/dial.ts";
import type { Link } from "../shared/link/link.ts";
import { resetSocket } from "../shared/net/tls.ts";
import { Authority, type CertificateAndKey } from "../shared/pki/certificates.ts";
import { createLogger } from "../shared/process/logger.ts";
import { defaultsOf } from "../shared/process/options.ts";
import { encodeAnswer, readOpen } from "../shared/wire/open.ts";
import { Session } from "../shared/yamux/session.ts";
import type { Stream } from "../shared/yamux/stream.ts";
import { type ServerOptions, serverOptions } from "./options.ts";
import { type Server, startServer } from "./server.ts";

const CONNECT = "CONNECT 10.0.0.1:10250 HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n";
const ESTABLISHED = "HTTP/1.1 200 Connection Established\r\n\r\n";

const pki = {} as {
  folder: string;
  ca: Authority;
  other: Authority;
  server: CertificateAndKey;
  caller: CertificateAndKey;
  agent: CertificateAndKey;
};

before(async () => {
  pki.folder = await mkdtemp(join(tmpdir(), "culvert-server-"));
  pki.ca = await Authority.create("ca");
  pki.other = await Authority.create("other");
  pki.server = await pki.ca.issue({ cn: "server", names: ["localhost", "127.0.0.1"], usage: "server" });
  pki.caller = await pki.ca.issue({ cn: "kube-apiserver", o: ["system:masters"], usage: "client" });
  pki.agent = await pki.ca.issue({ cn: "konnectivity-agent", usage: "client" });
  await writeFile(join(pki.folder, "ca.pem"), pki.ca.cert);
  await writeFile(join(pki.folder, "cert.pem"), pki.server.cert);
  await writeFile(join(pki.folder, "key.pem"), pki.server.key);
});

after(() => rm(pki.folder, { recursive: true, force: true }));

async function start(more: Partial<ServerOptions> = {}): Promise<Server & { readonly lines: readonly object[] }> {
  const [cert, key, ca] = ["cert.pem", "key.pem", "ca.pem"].map((name) => join(pki.folder, name)) as [
    string,
    string,
    string,
  ];
  const lines: object[] = [];
  const destination = { write: (line: string) => void lines.push(JSON.parse(line)) };
  const options: ServerOptions = {
    ...defaultsOf(serverOptions),
    ...{ serverId: "srv-1", serverPort: 0, agentPort: 0, healthPort: 0, adminPort: 0 },
    ...{ serverBindAddress: "127.0.0.1", agentBindAddress: "127.0.0.1", healthBindAddress: "127.0.0.1" },
    ...{ serverCert: cert, serverKey: key, serverCaCert: ca, clusterCert: cert, clusterKey: key, clusterCaCert: ca },
    agentWaitMs: 20,
    drainTimeoutMs: 2_000,
    ...more,
  };
  const log = createLogger({ level: "debug", format: "json", name: "server", destination });
  return Object.assign(await startServer(options, { log, listenEphemeral: true }), { lines });
}

interface TestAgent {
  readonly link: Link;
  readonly session: Session;
  readonly streams: Stream[];
  readonly closed: Promise<Error | undefined>;
}

/** An agent whose targets echo. */
async function agentOf(
  server: Server,
  more: { agentId?: string; instance?: string; cluster?: string; by?: CertificateAndKey; path?: string } = {},
): Promise<TestAgent> {
  const { agentId = "a", instance = "1", cluster, by = pki.agent, path = "/culvert/v1/tunnel" } = more;
  const { link, welcome } = await dialLink({
    host: "localhost",
    port: server.addresses.agents?.port ?? 0,
    address: { host: "127.0.0.1", port: server.addresses.agents?.port ?? 0 },
    path,
    tls: { ca: pki.ca.cert, cert: by.cert, key: by.key },
    hello: {
      type: "hello",
      version: 1,
      agentId,
      instance,
      software: "test",
      ...(cluster !== undefined && { cluster }),
    },
    keepaliveMs: 20_000,
    timeoutMs: 5_000,
  });
  const streams: Stream[] = [];
  let over: (reason: Error | undefined) => void = () => {};
  const closed = new Promise<Error | undefined>((resolve) => {
    over = resolve;
  });
  const onStream = async (stream: Stream) => {
    stream.on("error", () => {});
    streams.push(stream);
    stream.accept();
    await readOpen(stream, 1_000);
    stream.write(encodeAnswer({ ok: true }));
    stream.pipe(stream);
  };
  const session = new Session(
    "client",
    link,
    { onStream: (stream) => void onStream(stream), onClosed: over },
    { initialWindow: welcome.initialWindow },
  );
  return { link, session, streams, closed };
}

/** A caller on the TLS port. */
async function callerOf(server: Server, by?: CertificateAndKey): Promise<TLSSocket> {
  const socket = dialTls({
    port: server.addresses.callers?.port ?? 0,
    host: "127.0.0.1",
    ca: pki.ca.cert,
    ...{ allowHalfOpen: true }, // which Node takes and its types do not know
    ...by,
  });
  socket.on("error", () => {});
  await once(socket, "secureConnect");
  return socket;
}

function collect(socket: Readable): string[] {
  const reads: string[] = [];
  socket.on("data", (chunk: Buffer) => reads.push(chunk.toString("latin1")));
  return reads;
}

async function until(condition: () => boolean): Promise<void> {
  const deadline = Date.now() + 5_000;
  while (!condition()) {
    assert.ok(Date.now() < deadline, `not within 5 s: ${condition}`);
    await new Promise((resolve) => setTimeout(resolve, 1));
  }
}

function fetchText(port: number | undefined, path: string): Promise<{ status: number; text: string }> {
  return new Promise((resolve, reject) => {
    get({ port, path, host: "127.0.0.1", agent: false }, (response) => {
      const chunks = collect(response);
      response.on("end", () => resolve({ status: response.statusCode ?? 0, text: chunks.join("") }));
    }).on("error", reject);
  });
}

test("a CONNECT goes through the unix socket and through TLS at the same time", async () => {
  const udsName = join(pki.folder, "s.sock");
  await using server = await start({ udsName });
  await agentOf(server);
  const plain = dialPlain(udsName);
  const secure = await callerOf(server, pki.caller);
  for (const socket of [plain, secure]) {
    const reads = collect(socket);
    socket.write(CONNECT);
    await until(() => reads.length > 0);
    assert.equal(reads.join(""), ESTABLISHED);
    socket.write("hello");
    await until(() => reads.join("") === `${ESTABLISHED}hello`);
    socket.end();
    await once(socket, "close");
  }
  await server.close();
  await assert.rejects(stat(udsName), { code: "ENOENT" });
});

test("over TLS the 200 is in a read of its own, without a wait", async () => {
  await using server = await start({ establishedGapMs: 60_000 });
  const agent = await agentOf(server);
  for (let round = 0; round < 10; round++) {
    const socket = await callerOf(server, pki.caller);
    const reads = collect(socket);
    socket.write(`${CONNECT}early`); // the echo target then speaks as early as can be
    await until(() => reads.join("").endsWith("early"));
    assert.deepEqual(reads, [ESTABLISHED, "early"]);
    socket.destroy();
  }
  assert.equal(agent.streams.length, 10);
});

test("callers without a good certificate hear 407 and why", async () => {
  const stranger = await pki.other.issue({ cn: "kube-apiserver", usage: "client" });
  await using server = await start();
  for (const [by, says] of [
    [undefined, /^HTTP\/1\.1 407 a client certificate is needed and none was sent\r\n/],
    [stranger, /^HTTP\/1\.1 407 the client certificate is not signed by a CA/],
    [pki.agent, /^HTTP\/1\.1 407 the client certificate CN=konnectivity-agent is an agent's, not a caller's\r\n/],
  ] as const) {
    for (const request of [CONNECT, "GET / HTTP/1.1\r\n\r\n", "CONNECT nonsense HTTP/1.1\r\n\r\n"]) {
      const socket = await callerOf(server, by);
      const reads = collect(socket);
      socket.write(request);
      await once(socket, "end");
      assert.match(reads.join(""), says);
      socket.destroy();
    }
  }
});

test("--caller-identities decides alone, when it is given", async () => {
  await using server = await start({ callerIdentities: ["CN=konnectivity-agent", "O=other"] });
  for (const [by, status] of [
    [pki.agent, 503],
    [pki.caller, 407],
  ] as const) {
    const socket = await callerOf(server, by);
    const reads = collect(socket);
    socket.write(CONNECT);
    await until(() => reads.length > 0);
    assert.match(reads.join(""), new RegExp(`^HTTP/1.1 ${status} `));
    socket.destroy();
  }
});

test("agents are refused before the upgrade, in HTTP, with a reason", async () => {
  const stranger = await pki.other.issue({ cn: "konnectivity-agent", usage: "client" });
  const client = await pki.ca.issue({ cn: "konnectivity-client", usage: "client" });
  await using server = await start();
  for (const [more, status, says] of [
    [{ by: stranger }, 401, /not signed by a CA/],
    [{ by: client }, 403, /is a caller's, not an agent's/],
    [{ path: "/elsewhere" }, 404, /agents connect at \/culvert\/v1\/tunnel/],
  ] as const) {
    await assert.rejects(agentOf(server, more), (error: { status?: number; reason?: string }) => {
      assert.equal(error.status, status);
      assert.match(error.reason ?? "", says);
      return true;
    });
  }
});

test("a request that is no upgrade is 426, after the certificate was judged", async () => {
  await using server = await start();
  for (const [by, says] of [
    [pki.agent, /^HTTP\/1\.1 426 Upgrade Required\r\n(?:.*\r\n)*upgrade: websocket\r\n/],
    [undefined, /^HTTP\/1\.1 401 /],
  ] as const) {
    const socket = dialTls({ port: server.addresses.agents?.port ?? 0, host: "127.0.0.1", ca: pki.ca.cert, ...by });
    socket.on("error", () => {});
    const reads = collect(socket);
    socket.write("GET /culvert/v1/tunnel HTTP/1.1\r\nHost: x\r\n\r\n");
    await once(socket, "end");
    assert.match(reads.join(""), says);
    socket.destroy();
  }
});

test("after the upgrade agents are refused with a close code: twice the same, another's id, another cluster", async () => {
  const other = await pki.ca.issue({ cn: "somebody", usage: "client" });
  await using server = await start();
  const first = await agentOf(server);
  for (const [more, closeCode, says] of [
    [{}, 4409, /already_connected.*"srv-1"/],
    [{ by: other }, 4410, /belongs to another certificate/],
    [{ agentId: "b", cluster: "blue" }, 4403, /belongs to cluster "default"/],
  ] as const) {
    await assert.rejects(agentOf(server, more), (error: { closeCode?: number; reason?: string }) => {
      assert.equal(error.closeCode, closeCode);
      assert.match(error.reason ?? "", says);
      return true;
    });
  }
  assert.equal(first.session.closed, false);
  assert.equal(first.session.draining, false);
});

test("a restarted agent takes over, and the streams of its old process live on", async () => {
  await using server = await start();
  const old = await agentOf(server);
  const socket = await callerOf(server, pki.caller);
  const reads = collect(socket);
  socket.write(CONNECT);
  await until(() => reads.length === 1);
  const young = await agentOf(server, { instance: "2" });
  await until(() => old.session.draining);
  socket.write("still here");
  await until(() => reads.join("").endsWith("still here"));
  const second = await callerOf(server, pki.caller);
  second.write(CONNECT);
  await until(() => young.streams.length === 1);
  second.destroy();
  socket.end();
  await old.closed;
});

test("a caller that resets its TLS connection resets the stream; an agent that is lost resets the caller", async () => {
  await using server = await start();
  const agent = await agentOf(server);
  const leaving = await callerOf(server, pki.caller);
  const reads = collect(leaving);
  leaving.write(CONNECT);
  await until(() => reads.length === 1);
  resetSocket(leaving);
  await until(() => agent.streams[0]?.destroyed === true);

  const staying = await callerOf(server, pki.caller);
  let ended = false;
  staying.on("end", () => {
    ended = true;
  });
  const more = collect(staying);
  staying.write(CONNECT);
  await until(() => more.length === 1);
  agent.link.destroy();
  const [error] = await once(staying, "error");
  assert.equal(error.code, "ECONNRESET");
  assert.equal(ended, false, "no end in order");
  await until(() => server.lines.some((line) => "outcome" in line && line.outcome === "agent_lost"));
});

test("closing: not ready, agents told, no new CONNECTs, open ones live on, and the end when they have ended", async () => {
  const udsName = join(pki.folder, "d.sock");
  const server = await start({ udsName });
  const agent = await agentOf(server);
  const socket = dialPlain({ path: udsName, allowHalfOpen: true });
  const reads = collect(socket);
  socket.write(CONNECT);
  await until(() => reads.length === 1);
  const told: string[] = [];
  agent.link.onControl = (message) => told.push(message.type);

  const closing = server.close();
  assert.match((await fetchText(server.addresses.health?.port, "/readyz")).text, /\[-\]not-draining failed/);
  await assert.rejects(callerOf(server, pki.caller));
  await until(() => agent.session.draining && told.length === 1);
  assert.deepEqual(told, ["drain"]);
  socket.write("still here");
  await until(() => reads.join("").endsWith("still here"));
  socket.end();
  const ended = performance.now();
  await closing;
  assert.ok(performance.now() - ended < 1_000);
  assert.equal(await agent.closed, undefined, "the session was closed in order");
  await assert.rejects(fetchText(server.addresses.health?.port, "/readyz"));
});

test("closing does not wait beyond --drain-timeout", async () => {
  const server = await start({ drainTimeoutMs: 100 });
  await agentOf(server);
  const socket = await callerOf(server, pki.caller);
  const reads = collect(socket);
  socket.write(CONNECT);
  await until(() => reads.length === 1);
  const started = performance.now();
  await server.close();
  assert.ok(performance.now() - started < 1_500);
  await until(() => socket.destroyed);
});

test("an idle server with an agent closes in well under a second", async () => {
  const server = await start({ udsName: join(pki.folder, "i.sock") });
  await agentOf(server);
  await callerOf(server, pki.caller); // has asked for nothing
  const started = performance.now();
  await server.close();
  assert.ok(performance.now() - started < 700, `${performance.now() - started} ms`);
  await server.close();
});

test("destroy ends everything at once", async () => {
  const server = await start();
  const agent = await agentOf(server);
  server.destroy(new Error("enough"));
  await agent.closed;
  await server.close();
});

test("readiness and status tell what an operator asks", async () => {
  await using server = await start({ readyNeedsAgent: true });
  const health = server.addresses.health?.port;
  const before = await fetchText(health, "/readyz?verbose");
  assert.equal(before.status, 503);
  assert.match(before.text, /\[-\]agents failed: 0 connected/);
  assert.match(
    before.text,
    /\[\+\]configuration ok: callers and agents come from the same CA: give --caller-identities and --agent-identities/,
  );
  await agentOf(server);
  await until(() => [...server.tunnels.tunnels()].length === 1);
  assert.equal((await fetchText(health, "/readyz")).status, 200);
  const status = JSON.parse((await fetchText(server.addresses.admin?.port, "/status")).text);
  assert.equal(status.serverId, "srv-1");
  assert.equal(status.clusters[0].tunnels[0].agent, "a");
  assert.equal(status.clusters[0].tunnels[0].identity, "CN=konnectivity-agent");
  const warnings = server.lines.filter((line) => "level" in line && line.level === "warn");
  assert.equal(warnings.length, 1, "the shared CA is said once");
});

test("what cannot start says which option is wrong, and leaves nothing open", async () => {
  await assert.rejects(
    start({ serverCert: join(pki.folder, "none.pem") }),
    /listener for callers.*none\.pem.*no such file/,
  );
  await assert.rejects(start({ agentIdentities: ["nonsense"] }), /--agent-identities: identity pattern "nonsense"/);
  await using first = await start();
  const taken = first.addresses.callers?.port ?? 0;
  await assert.rejects(start({ serverPort: taken }), /in use by another process.*--server-port/);
});

test("a connection that says nothing is cut at its deadline, on every port", async () => {
  await using server = await start({ headerTimeoutMs: 50, handshakeTimeoutMs: 50 });
  const silent = await callerOf(server, pki.caller);
  const reads = collect(silent);
  await once(silent, "end");
  assert.match(reads.join(""), /^HTTP\/1\.1 408 /);
  const { callers, agents } = server.addresses;
  for (const address of [callers, agents]) {
    const socket = dialPlain({ port: address?.port ?? 0, host: "127.0.0.1" });
    socket.on("error", () => {}).resume();
    await once(socket, "close");
  }
  const noUpgrade = dialTls({ port: agents?.port ?? 0, host: "127.0.0.1", ca: pki.ca.cert, ...pki.agent });
  noUpgrade.on("error", () => {}).resume();
  await once(noUpgrade, "close");
});
