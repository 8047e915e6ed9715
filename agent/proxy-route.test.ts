import assert from "node:assert/strict";
import { once } from "node:events";
import { writeFile } from "node:fs/promises";
import http from "node:http";
import net, { type AddressInfo } from "node:net";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import { pino } from "pino";
import { until } from "../shared/basics/testing/wait.ts";
import { ConfigError, defaultsOf } from "../shared/config/options.ts";
import { type AgentOptions, agentOptions } from "./context/options.ts";
import { parseServerUrl } from "./context/servers.ts";
import { type LogLine, prepared } from "./testing/agent.ts";
import { listenFor } from "./testing/listener.ts";
import { AgentRoutes } from "./uplink/proxy-route.ts";

/** An HTTP proxy that wants a password, and what it was asked. */
class TestProxy {
  password = "";
  readonly asked: string[] = [];
  /** Credentials that the proxy has refused; a challenge alone adds none. */
  readonly refused: string[] = [];
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
      const shown = request.headers["proxy-authorization"];
      if (shown !== undefined) this.refused.push(shown);
      socket.end(
        'HTTP/1.1 407 Who\r\nProxy-Authenticate: Basic realm="corp"\r\nConnection: close\r\nContent-Length: 0\r\n\r\n',
      );
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

function connectedIn(lines: readonly LogLine[]): number {
  return lines.filter(({ msg }) => msg === "uplink connected").length;
}

/** The ways that the log tells of. */
function waysIn(lines: readonly LogLine[]): unknown[] {
  return lines.filter(({ msg }) => msg === "proxy route").map(({ way }) => way);
}

/** Never the proxy's business to resolve: the agent names what it wants. */
async function behindProxy(t: TestContext, change: Partial<AgentOptions> = {}, env: Record<string, string> = {}) {
  const proxy = new TestProxy();
  const port = await proxy.listen();
  t.after(() => proxy.close());
  const agent = await prepared(t, { serverAddress: "", ...change }, env);
  const reasons = () => agent.lines.flatMap(({ reason }) => (typeof reason === "string" ? reason : []));
  return { ...agent, proxy, url: `http://127.0.0.1:${port}`, reasons };
}

test("an agent goes through its proxy, and a resume takes the same way", async (t) => {
  const { proxy, url, server, lines, start } = await behindProxy(t);
  const agent = await start({ proxy: [url] });
  await agent.whenConnected();
  const asked = `localhost:${server.port}`;
  assert.deepEqual(proxy.asked, [asked]);
  assert.deepEqual(waysIn(lines), [`${url} (--proxy)`]);
  proxy.cut();
  await until(() => connectedIn(lines) === 2);
  assert.deepEqual(proxy.asked, [asked, asked]);
  assert.deepEqual(waysIn(lines), [`${url} (--proxy)`], "no other one");
});

test("a proxy behind which somebody else answers is tried after the other one", async (t) => {
  const { proxy, url, lines, start } = await behindProxy(t, { syncIntervalMs: 10, syncIntervalCapMs: 20 });
  // It says that it has opened a connection, and shows a page to whatever comes.
  const portal = net.createServer((socket) => {
    socket.once("data", () => {
      socket.write("HTTP/1.1 200 OK\r\n\r\n");
      socket.once("data", () => socket.end("HTTP/1.1 403 Blocked\r\n\r\n"));
    });
  });
  const blocked = `http://127.0.0.1:${await listenFor(t, portal)}`;
  const agent = await start({ proxy: [blocked, url] });
  await agent.whenConnected();
  assert.equal(proxy.asked.length, 1);
  assert.deepEqual(waysIn(lines), [`${url} (--proxy)`], "the one that works");
});

test("of two ways that lead nowhere, each tried in turn, none is told; of two that do, each that is taken after the other", async (t) => {
  const { proxy, url, server, lines, start } = await behindProxy(t, { syncIntervalMs: 10, syncIntervalCapMs: 20 });
  const second = new TestProxy();
  const other = `http://127.0.0.1:${await second.listen()}`;
  t.after(() => second.close());
  const failures = () => lines.filter(({ msg }) => msg === "uplink attempt failed").length;
  const plain = net.createServer((socket) => socket.end("no TLS\r\n"));
  const elsewhere = [`wss://localhost:${await listenFor(t, plain)}`];
  const nowhere = await start({ proxy: [url, other], server: elsewhere, agentId: "nowhere" });
  await until(() => failures() > 5 && proxy.asked.length > 2 && second.asked.length > 2);
  nowhere.destroy(new Error("it has tried enough"));
  assert.deepEqual(waysIn(lines), []);

  const agent = await start({ proxy: [url, other] });
  await agent.whenConnected();
  proxy.close();
  await until(() => connectedIn(lines) === 2);
  assert.equal(second.asked.at(-1), `localhost:${server.port}`);
  assert.deepEqual(waysIn(lines), [`${url} (--proxy)`, `${other} (--proxy)`]);
  assert.match(
    `${lines.findLast(({ msg }) => msg === "proxy route")?.["reason"]}`,
    /^http:\/\/127\.0\.0\.1:\d+ refused the connection/,
  );
});

test("a password is read from its file for each connection; without it, or with a wrong one, the log says what to do", async (t) => {
  const { proxy, url, dir, lines, reasons, start } = await behindProxy(t, {
    syncIntervalMs: 10,
    syncIntervalCapMs: 20,
  });
  proxy.password = "first";
  const proxyCredentialsFile = join(dir, "proxy");
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

test("an agent with three servers shows a wrong password once, says what it waits for, and takes a new one", async (t) => {
  const { proxy, url, server, dir, lines, start } = await behindProxy(t, { syncIntervalMs: 10, syncIntervalCapMs: 20 });
  proxy.password = "right";
  const proxyCredentialsFile = join(dir, "proxy");
  await writeFile(proxyCredentialsFile, "user:wrong\n");
  const ports = [server.port, 1, 2];
  await start({ proxy: [url], proxyCredentialsFile, server: ports.map((port) => `wss://localhost:${port}`) });
  const isHeld = ({ reason, ...line }: LogLine, port: number): boolean =>
    `${line["server"]}`.includes(`localhost:${port}`) &&
    /refused the password .* ago; to avoid an account lockout it is sent again in \d min: /.test(`${reason}`);
  await until(() => ports.every((port) => lines.filter((line) => isHeld(line, port)).length > 5));
  assert.equal(proxy.refused.length, 1);
  await writeFile(proxyCredentialsFile, "user:right\n");
  await until(() => proxy.asked.length > 2);
  assert.equal(proxy.refused.length, 1);
});

test("a proxy route that is not the first one says what is wrong with that", async (t) => {
  const { proxy, url, lines, start } = await behindProxy(t);
  const wants = new TestProxy();
  wants.password = "secret";
  const first = `http://127.0.0.1:${await wants.listen()}`;
  t.after(() => wants.close());
  const agent = await start({ proxy: [first, url] });
  await agent.whenConnected();
  assert.equal(proxy.asked.length, 1);
  const [line] = lines.filter(({ msg }) => msg === "proxy route");
  assert.equal(line?.["way"], `${url} (--proxy)`);
  assert.match(`${line?.["reason"]}`, /^the proxy \S+ wants to know who we are: give user:password in --proxy-creden/);
});

async function scriptOf(dir: string, result: string): Promise<string> {
  const pac = join(dir, "proxy.pac");
  await writeFile(pac, `function FindProxyForURL() { return "${result}"; }\n`);
  return pac;
}

test("the direct way is told where a proxy should have come first, and why that one did not", async (t) => {
  const { dir, lines, start } = await behindProxy(t);
  const agent = await start({ pac: await scriptOf(dir, "PROXY 127.0.0.1:1; DIRECT") });
  await agent.whenConnected();
  const [line] = lines.filter(({ msg }) => msg === "proxy route");
  assert.equal(line?.["way"], "direct");
  assert.match(`${line?.["reason"]}`, /^http:\/\/127\.0\.0\.1:1 refused the connection/);
});

test("what was wrong with a way is told once, and not of another one that a resume takes", async (t) => {
  const { dir, url, server } = await behindProxy(t);
  const later = new TestProxy();
  const port = await later.listen();
  t.after(() => later.close());
  const lines: LogLine[] = [];
  const log = pino({}, { write: (line) => lines.push(JSON.parse(line)) });
  const pac = await scriptOf(dir, `PROXY 127.0.0.1:1; PROXY ${url.slice("http://".length)}`);
  const location = parseServerUrl(`wss://localhost:${server.port}`);
  const way = new AgentRoutes({ ...defaultsOf(agentOptions), pac }, {}, log).to(location, "s");
  const opened = async () => {
    const { socket } = await way.open(t.signal);
    socket.destroy();
    way.worked();
  };
  await opened();
  await scriptOf(dir, `PROXY 127.0.0.1:${port}`);
  await opened();
  assert.equal(waysIn(lines).length, 2);
  assert.match(`${lines[0]?.["reason"]}`, /^http:\/\/127\.0\.0\.1:1 refused the connection/);
  assert.equal(lines[1]?.["reason"], undefined);
});

test("a broken --proxy-ca stands in the way of https:// proxies only", async (t) => {
  const { dir, url, proxy, reasons, start } = await behindProxy(t, { syncIntervalMs: 10, syncIntervalCapMs: 20 });
  const proxyCa = join(dir, "nothing.crt");
  await (await start({ proxyCa })).whenConnected();
  await (await start({ proxyCa, proxy: [url], agentId: "a2" })).whenConnected();
  assert.equal(proxy.asked.length, 1);
  await start({ proxyCa, proxy: [url.replace("http:", "https:")], agentId: "a3" });
  await until(() =>
    reasons().some((reason) => /^--proxy-ca: the CA certificate .* there is no such file/.test(reason)),
  );
});

test("the environment names the proxy where no option does, and loopback never goes through it", async (t) => {
  const { proxy, start } = await behindProxy(t, {}, { HTTPS_PROXY: "http://127.0.0.1:9" });
  const agent = await start();
  await agent.whenConnected();
  assert.deepEqual(proxy.asked, [], "localhost");
});

test("a proxy that is none fails the start with a sentence that does not repeat it", async (t) => {
  const { start } = await behindProxy(t, {}, { HTTPS_PROXY: "gopher://user:secret@proxy" });
  await assert.rejects(start(), (error: Error) => {
    assert.ok(error instanceof ConfigError);
    assert.match(error.message, /HTTPS_PROXY/);
    assert.doesNotMatch(error.message, /secret/);
    return true;
  });
});
