import assert from "node:assert/strict";
import { once } from "node:events";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { createServer as createHttpServer } from "node:http";
import { type AddressInfo, createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import { formatProxy, formatRoute } from "./proxy-route.ts";
import { ProxyRoutes, type ProxyRoutesOptions } from "./proxy-routes.ts";
import { basicProxy, httpProxy, never, rejected, SERVER, socks, ways } from "./testing/routes.ts";
import { NO_AUTH, reply, scripted } from "./testing/scripted-socks.ts";

test("without a word from anybody, the way is direct", async () => {
  assert.deepEqual(await named({}), ["direct"]);
  assert.deepEqual(await named({ env: { NO_PROXY: "*" } }), ["direct"]);
});

test("--proxy comes before the environment, the environment before --pac, and none has another behind it", async (t) => {
  const pac = pacFile(t, "PROXY fromPac:1; DIRECT");
  const env = { HTTPS_PROXY: "http://env:1" };
  assert.deepEqual(await named({ proxies: ["b:1", "socks5://a:1"], pac, env }), [
    "http://b:1 (--proxy)",
    "socks5://a:1 (--proxy)",
  ]);
  assert.deepEqual(await named({ pac, env }), ["http://env:1 (HTTPS_PROXY)"]);
  assert.deepEqual(await named({ pac }), [`http://frompac:1 (PAC ${pac})`, "direct"]);
});

test("NO_PROXY is an answer of the environment: --pac is not asked, --proxy not touched", async (t) => {
  const env = { HTTPS_PROXY: "http://env:1", NO_PROXY: "example.com" };
  assert.deepEqual(await named({ pac: pacFile(t, "PROXY pac:1"), env }), ["direct"]);
  assert.deepEqual(await named({ proxies: ["a:1"], env }), ["http://a:1 (--proxy)"]);
});

test("each destination has a memory of its own", async () => {
  const out = ways({ proxies: ["a:1", "b:1"] });
  const [a] = await out.chooseRoutes(SERVER, never());
  assert.ok(a);
  out.failed(SERVER, a);
  const order = async (host: string) => (await out.chooseRoutes({ ...SERVER, host }, never())).map(formatRoute);
  assert.deepEqual(await order("culvert.example.com"), ["http://b:1 (--proxy)", "http://a:1 (--proxy)"]);
  assert.deepEqual(await order("other.example.com"), ["http://a:1 (--proxy)", "http://b:1 (--proxy)"]);
});

test("what is wrong is named at once and not shown", () => {
  assert.throws(() => ways({ proxies: ["a:1", "gopher://secret"] }), /^Error: --proxy must begin with http:/);
  assert.throws(() => ways({ env: { all_proxy: "gopher://secret" } }), /^Error: all_proxy must begin with http:/);
  assert.throws(() => ways({ pac: "gopher://secret" }), /^Error: --pac needs a file or/);
});

test("the direct way is opened, and told", async (t) => {
  const server = createServer((socket) => socket.end("hello")).listen(0, "127.0.0.1");
  await once(server, "listening");
  t.after(() => server.close());
  const { port } = server.address() as AddressInfo;
  const { socket, route } = await ways({}).open({ host: "127.0.0.1", port }, {}, never());
  assert.deepEqual(route, { kind: "direct" });
  const [hello] = await once(socket, "data");
  assert.equal(String(hello), "hello");
});

test("a way is opened through an HTTP proxy", async (t) => {
  const proxy = createHttpServer();
  proxy.on("connect", ({ url }, socket) => socket.end(`HTTP/1.1 200 OK\r\n\r\nto ${url}`));
  proxy.listen(0, "127.0.0.1");
  await once(proxy, "listening");
  t.after(() => proxy.close());
  const { port } = proxy.address() as AddressInfo;
  const { socket, route } = await ways({ proxies: [`http://127.0.0.1:${port}`] }).open(SERVER, {}, never());
  assert.equal(formatRoute(route), `http://127.0.0.1:${port} (--proxy)`);
  const chunks: Buffer[] = [];
  for await (const chunk of socket) chunks.push(chunk as Buffer);
  assert.equal(String(Buffer.concat(chunks)), "to culvert.example.com:443");
});

test("the next way is tried when one fails; which did and which did not is remembered", async (t) => {
  let now = 0;
  const refuses = await socks(t, 2);
  const opens = await socks(t, 0);
  const out = new ProxyRoutes({ proxies: [refuses.at, opens.at, "socks5h://third"], pac: "", env: {} }, () => now);
  const order = async () =>
    (await out.chooseRoutes(SERVER, never())).map((way) => way.kind === "proxy" && formatProxy(way.proxy));
  const { socket, route } = await out.open(SERVER, {}, never());
  socket.destroy();
  assert.equal(formatRoute(route), `${opens.at} (--proxy)`);
  assert.deepEqual(await order(), [opens.at, "socks5h://third:1080", refuses.at]);
  now += 10 * 60_000;
  assert.deepEqual(await order(), [opens.at, refuses.at, "socks5h://third:1080"]);
});

test("when all fail, the fault is the one that tells most, in the words of all", async (t) => {
  const gone = await socks(t, 0);
  await gone.close();
  const forbids = await socks(t, 2);
  const unreached = await socks(t, 4);
  const error = await rejected(ways({ proxies: [gone.at, forbids.at, unreached.at] }), "proxy_forbidden");
  assert.equal(error.at, forbids.at);
  assert.match(error.message, /refused the connection: .*; .* does not allow connections .*; .* cannot reach/);
});

test("a portal tells more than a proxy that reaches nobody, and less than one that wants a password", async (t) => {
  const portal = await httpProxy(t, (_said, socket) => socket.end("HTTP/1.1 511 Login\r\nContent-Length: 0\r\n\r\n"));
  const unreached = await socks(t, 5);
  const asks = await basicProxy(t, "anna:right");
  const error = await rejected(ways({ proxies: [unreached.at, portal] }), "web_page");
  assert.equal(error.at, portal);
  await rejected(ways({ proxies: [portal, asks.url] }), "proxy_auth_required");
});

test("an abort ends the trying", async (t) => {
  const abort = new AbortController();
  const silent = await scripted(t, async (peer) => {
    await peer.read(3);
    abort.abort();
  });
  const next = await scripted(t, async () => assert.fail("the next way was tried"));
  const error = await rejected(ways({ proxies: [silent.at, next.at] }), "timeout", {}, abort.signal);
  assert.equal(error.at, silent.at);
  assert.ok(!error.message.includes(next.at));
});

test("a way that is silent does not keep the next one from its turn", async (t) => {
  t.mock.timers.enable({ apis: ["setTimeout"] });
  const silent = await scripted(t, async (peer) => {
    await peer.read(3);
    t.mock.timers.tick(4_000);
  });
  const opens = await socks(t, 0);
  const { route } = await ways({ proxies: [silent.at, opens.at] }).open(SERVER, {}, never());
  assert.equal(formatRoute(route), `${opens.at} (--proxy)`);
});

test("a slow way that was cut short for the sake of others has all the time that they have left", async (t) => {
  t.mock.timers.enable({ apis: ["setTimeout"] });
  const slow = await slowSocks(t, 4_500);
  const gone = await socks(t, 0);
  await gone.close();
  const { route, failed } = await ways({ proxies: [slow.at, gone.at] }).open(SERVER, {}, never());
  assert.equal(formatRoute(route), `${slow.at} (--proxy)`);
  assert.deepEqual(
    failed.map(({ at }) => at),
    [gone.at],
  );
});

test("a slow way that was cut short is given its time in the next attempt, if the others have left none", async (t) => {
  t.mock.timers.enable({ apis: ["setTimeout"] });
  const slow = await slowSocks(t, 4_500);
  const abort = new AbortController();
  const silent = await scripted(t, async (peer) => {
    await peer.read(3);
    abort.abort();
  });
  let now = 0;
  const out = new ProxyRoutes({ proxies: [slow.at, silent.at], pac: "", env: {} }, () => now++);
  await rejected(out, "timeout", {}, abort.signal);
  const { route } = await out.open(SERVER, {}, never());
  assert.equal(formatRoute(route), `${slow.at} (--proxy)`);
});

test("a proxy in the environment gets nothing that belongs to others", async (t) => {
  const proxy = await scripted(t, async (peer) => {
    assert.equal(await peer.read(3), "050100");
    peer.write("05ff");
  });
  await rejected(ways({ env: { ALL_PROXY: proxy.at } }), "proxy_auth_required");
  await proxy.done;
});

/** A proxy that takes its time, of a clock that stands still otherwise. */
function slowSocks(t: TestContext, ms: number) {
  return scripted(t, async (peer) => {
    await peer.read(3);
    t.mock.timers.tick(ms);
    peer.write(NO_AUTH);
    await peer.readRequest();
    peer.write(reply(0));
  });
}

async function named(options: Partial<ProxyRoutesOptions>): Promise<readonly string[]> {
  return (await ways(options).chooseRoutes(SERVER, never())).map(formatRoute);
}

function pacFile(t: TestContext, answer: string): string {
  const folder = mkdtempSync(join(tmpdir(), "culvert-ways-"));
  t.after(() => rmSync(folder, { recursive: true }));
  const path = join(folder, "proxy.pac");
  writeFileSync(path, `function FindProxyForURL() { return "${answer}"; }`);
  return path;
}
