import assert from "node:assert/strict";
import { once } from "node:events";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import http from "node:http";
import net, { type AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import { pino } from "pino";
import { LinkServer, testCertificate, until } from "../shared/link/testing.ts";
import { ConfigError, defaultsOf } from "../shared/process/options.ts";
import { startAgent } from "./agent.ts";
import { type AgentOptions, agentOptions } from "./options.ts";

/** An HTTP proxy that wants a password, and what it was asked. */
class TestProxy {
  password = "";
  readonly asked: string[] = [];
  readonly tunnels = new Set<net.Socket>();
  readonly #server = http.createServer();

  async listen(): Promise<number> {
    this.#server.on("connect", (request, socket, head) => this.#onConnect(request, socket as net.Socket, head));
    await once(this.#server.listen(0, "127.0.0.1"), "listening");
    return (this.#server.address() as AddressInfo).port;
  }

  #onConnect(request: http.IncomingMessage, socket: net.Socket, head: Buffer): void {
    socket.on("error", () => {});
    const wanted = `Basic ${Buffer.from(`user:${this.password}`).toString("base64")}`;
    if (this.password !== "" && request.headers["proxy-authorization"] !== wanted) {
      socket.end('HTTP/1.1 407 Who\r\nProxy-Authenticate: Basic realm="corp"\r\nContent-Length: 0\r\n\r\n');
      return;
    }
    this.asked.push(request.url ?? "");
    const [, port] = (request.url ?? "").split(":");
    const onward = net.connect(Number(port), "127.0.0.1", () => {
      socket.write("HTTP/1.1 200 Connection established\r\n\r\n");
      onward.write(head);
      socket.pipe(onward).pipe(socket);
    });
    onward.on("error", () => socket.destroy());
    socket.on("close", () => onward.destroy());
    this.tunnels.add(socket);
  }

  cut(): void {
    for (const socket of this.tunnels) socket.destroy();
    this.tunnels.clear();
  }

  close(): void {
    this.#server.close();
    this.cut();
  }
}

async function prepared(t: TestContext, change: Partial<AgentOptions> = {}, env: Record<string, string> = {}) {
  const proxy = new TestProxy();
  const port = await proxy.listen();
  t.after(() => proxy.close());
  const server = await LinkServer.start();
  t.after(() => server[Symbol.asyncDispose]());
  const dir = await mkdtemp(join(tmpdir(), "culvert-"));
  t.after(() => rm(dir, { recursive: true }));
  const caCert = join(dir, "ca.crt");
  await writeFile(caCert, (await testCertificate()).ca);
  const lines: { readonly msg: string; readonly reason?: string; readonly way?: string }[] = [];
  const log = pino({ level: "debug" }, { write: (line) => lines.push(JSON.parse(line)) });
  const start = async (more: Partial<AgentOptions> = {}) => {
    const options: AgentOptions = {
      ...defaultsOf(agentOptions),
      // Never the proxy's business to resolve: the agent names what it wants.
      server: [`wss://localhost:${server.port}`],
      caCert,
      agentId: "a1",
      healthServerPort: 0,
      adminServerPort: 0,
      ...change,
      ...more,
    };
    const agent = await startAgent(options, { log, env });
    t.after(() => agent.destroy(new Error("the test is over")));
    return agent;
  };
  return { proxy, url: `http://127.0.0.1:${port}`, server, dir, lines, start };
}

test("an agent goes through its proxy, and a resume takes the same way", async (t) => {
  const { proxy, url, server, lines, start } = await prepared(t);
  const agent = await start({ proxy: [url] });
  await agent.whenConnected();
  const asked = `localhost:${server.port}`;
  assert.deepEqual(proxy.asked, [asked]);
  assert.deepEqual(
    lines.filter(({ msg }) => msg === "way out").map(({ way }) => way),
    [`${url} (--proxy)`],
  );
  proxy.cut();
  await until(() => proxy.asked.length > 1);
  assert.equal(proxy.asked[1], asked);
});

test("a proxy behind which somebody else answers is tried after the other one", async (t) => {
  const { proxy, url, lines, start } = await prepared(t, { syncIntervalMs: 10, syncIntervalCapMs: 20 });
  // It says that it has opened a connection, and shows a page to whatever comes.
  const portal = net.createServer((socket) => {
    socket
      .on("error", () => {})
      .once("data", () => {
        socket.write("HTTP/1.1 200 OK\r\n\r\n");
        socket.once("data", () => socket.end("HTTP/1.1 403 Blocked\r\n\r\n"));
      });
  });
  await once(portal.listen(0, "127.0.0.1"), "listening");
  t.after(() => portal.close());
  const blocked = `http://127.0.0.1:${(portal.address() as AddressInfo).port}`;
  const agent = await start({ proxy: [blocked, url] });
  await agent.whenConnected();
  assert.equal(proxy.asked.length, 1);
  assert.deepEqual(
    lines.filter(({ msg }) => msg === "way out").map(({ way }) => way),
    [`${blocked} (--proxy)`, `${url} (--proxy)`],
  );
});

test("a password is read from its file for each connection; without it, or with a wrong one, the log says what to do", async (t) => {
  const { proxy, url, dir, lines, start } = await prepared(t, { syncIntervalMs: 10, syncIntervalCapMs: 20 });
  proxy.password = "first";
  const proxyCredentialsFile = join(dir, "proxy");
  const reasons = () => lines.map(({ reason }) => reason ?? "").filter((reason) => reason !== "");
  await start({ proxy: [url] });
  await until(() => reasons().some((reason) => /--proxy-credentials-file/.test(reason)));
  await writeFile(proxyCredentialsFile, "user:wrong\n");
  const agent = await start({ proxy: [url], proxyCredentialsFile, agentId: "a2" });
  await until(() => reasons().some((reason) => /refuses the user or the password \(Basic\)/.test(reason)));
  await writeFile(proxyCredentialsFile, "user:first\n");
  await agent.whenConnected();
  const said = JSON.stringify(lines);
  for (const secret of ["wrong", Buffer.from("user:first").toString("base64")]) assert.ok(!said.includes(secret));
  assert.equal(lines.filter(({ msg }) => /its password in the clear/.test(msg)).length, 1, "said once");
});

test("the environment names the proxy where no option does, and loopback never goes through it", async (t) => {
  const { proxy, start } = await prepared(t, {}, { HTTPS_PROXY: "http://127.0.0.1:9" });
  const agent = await start();
  await agent.whenConnected();
  assert.deepEqual(proxy.asked, [], "localhost");
});

test("a proxy that is none fails the start with a sentence that does not repeat it", async (t) => {
  const { start } = await prepared(t, {}, { HTTPS_PROXY: "gopher://user:secret@proxy" });
  await assert.rejects(start(), (error: Error) => {
    assert.ok(error instanceof ConfigError);
    assert.match(error.message, /HTTPS_PROXY/);
    assert.doesNotMatch(error.message, /secret/);
    return true;
  });
});
