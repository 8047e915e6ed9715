import assert from "node:assert/strict";
import { once } from "node:events";
import { type AddressInfo, createServer } from "node:net";
import { text } from "node:stream/consumers";
import { type TestContext, test } from "node:test";
import { formatProxy, formatRoute, type ProxyRoute, parseProxyUrl } from "./proxy-route.ts";
import { ProxyRoutes, type ProxyRoutesOptions, RouteHistory } from "./proxy-routes.ts";
import { OK } from "./testing/guarded-proxy.ts";
import { pacScript } from "./testing/pac-server.ts";
import { basicProxy, credentialsFile, httpProxy, never, rejected, routes, SERVER, socks } from "./testing/routes.ts";
import { ScriptedProxy } from "./testing/scripted-proxy.ts";
import { NO_AUTH, reply, scripted } from "./testing/scripted-socks.ts";

test("if no source names a proxy, the route is direct", async () => {
  assert.deepEqual(await named({}), ["direct"]);
  assert.deepEqual(await named({ env: { NO_PROXY: "*" } }), ["direct"]);
});

test("--proxy precedes the environment, the environment precedes --pac, and exactly one of them counts", async (t) => {
  const pac = pacFile(t, "PROXY fromPac:1; DIRECT");
  const env = { HTTPS_PROXY: "http://env:1" };
  assert.deepEqual(await named({ proxies: ["b:1", "socks5://a:1"], pac, env }), [
    "http://b:1 (--proxy)",
    "socks5://a:1 (--proxy)",
  ]);
  assert.deepEqual(await named({ pac, env }), ["http://env:1 (HTTPS_PROXY)"]);
  assert.deepEqual(await named({ pac }), [`http://frompac:1 (PAC ${pac})`, "direct"]);
});

test("NO_PROXY is an answer of the environment: it excludes --pac and does not affect --proxy", async (t) => {
  const env = { HTTPS_PROXY: "http://env:1", NO_PROXY: "example.com" };
  assert.deepEqual(await named({ pac: pacFile(t, "PROXY pac:1"), env }), ["direct"]);
  assert.deepEqual(await named({ proxies: ["a:1"], env }), ["http://a:1 (--proxy)"]);
});

test("each target has a history of its own", async () => {
  const out = routes({ proxies: ["a:1", "b:1"] });
  const [a] = await out.chooseRoutes(SERVER, never());
  assert.ok(a);
  out.failed(SERVER, a);
  const order = async (host: string) => (await out.chooseRoutes({ ...SERVER, host }, never())).map(formatRoute);
  assert.deepEqual(await order("culvert.example.com"), ["http://b:1 (--proxy)", "http://a:1 (--proxy)"]);
  assert.deepEqual(await order("other.example.com"), ["http://a:1 (--proxy)", "http://b:1 (--proxy)"]);
});

test("an invalid option or variable is named at once, without its value", () => {
  assert.throws(() => routes({ proxies: ["a:1", "gopher://secret"] }), /^Error: --proxy must begin with http:/);
  assert.throws(() => routes({ env: { all_proxy: "gopher://secret" } }), /^Error: all_proxy must begin with http:/);
  assert.throws(() => routes({ pac: "gopher://secret" }), /^Error: --pac needs a file or/);
});

test("a direct route is opened", async (t) => {
  const server = createServer((socket) => socket.end("hello")).listen(0, "127.0.0.1");
  await once(server, "listening");
  t.after(() => server.close());
  const { port } = server.address() as AddressInfo;
  const { socket, route } = await routes({}).open({ host: "127.0.0.1", port }, {}, never());
  assert.deepEqual(route, { kind: "direct" });
  assert.equal(await text(socket), "hello");
});

test("a route is opened through an HTTP proxy", async () => {
  await using proxy = await ScriptedProxy.start({ onRequest: ({ line }, socket) => socket.end(`${OK}to ${line}`) });
  const at = formatProxy(proxy.url);
  const { socket, route } = await routes({ proxies: [at] }).open(SERVER, {}, never());
  assert.equal(formatRoute(route), `${at} (--proxy)`);
  assert.match(await text(socket), /^to CONNECT culvert\.example\.com:443 /);
});

test("the next route is tried when one fails, and later attempts remember it", async (t) => {
  let now = 0;
  const refuses = await socks(t, 2);
  const opens = await socks(t, 0);
  const out = new ProxyRoutes({ proxies: [refuses.at, opens.at, "socks5h://third"], pac: "", env: {} }, () => now);
  const order = async () =>
    (await out.chooseRoutes(SERVER, never())).map((route) => route.kind === "proxy" && formatProxy(route.proxy));
  const { socket, route } = await out.open(SERVER, {}, never());
  socket.destroy();
  assert.equal(formatRoute(route), `${opens.at} (--proxy)`);
  assert.deepEqual(await order(), [opens.at, "socks5h://third:1080", refuses.at]);
  now += 10 * 60_000;
  assert.deepEqual(await order(), [opens.at, refuses.at, "socks5h://third:1080"]);
});

test("when all fail, the fault is the most informative one, with the messages of all", async (t) => {
  const [gone, forbids, unreached] = [await socks(t, 0), await socks(t, 2), await socks(t, 4)];
  await gone.close(); // after the others have their ports, or one of them could get this one
  const error = await rejected(routes({ proxies: [gone.at, forbids.at, unreached.at] }), "proxy_forbidden");
  assert.equal(error.at, forbids.at);
  assert.match(error.message, /refused the connection: .*; .* does not allow connections .*; .* cannot reach/);
});

test("a captive portal is more informative than an unreachable server, and less than a login", async (t) => {
  const portal = await httpProxy(t, (_said, socket) => socket.end("HTTP/1.1 511 Login\r\nContent-Length: 0\r\n\r\n"));
  const unreached = await socks(t, 5);
  const asks = await basicProxy(t, "anna:right");
  const error = await rejected(routes({ proxies: [unreached.at, portal] }), "web_page");
  assert.equal(error.at, portal);
  await rejected(routes({ proxies: [portal, asks.url] }), "proxy_auth_required");
});

test("an abort ends the attempt", async (t) => {
  const abort = new AbortController();
  const silent = await scripted(t, async (peer) => {
    await peer.read(3);
    abort.abort();
  });
  const next = await scripted(t, async () => assert.fail("the next route was tried"));
  const error = await rejected(routes({ proxies: [silent.at, next.at] }), "timeout", {}, abort.signal);
  assert.equal(error.at, silent.at);
  assert.ok(!error.message.includes(next.at));
});

test("a route that never answers does not keep the next one from its turn", async (t) => {
  t.mock.timers.enable({ apis: ["setTimeout"] });
  const silent = await scripted(t, async (peer) => {
    await peer.read(3);
    t.mock.timers.tick(4_000);
  });
  const opens = await socks(t, 0);
  const { route } = await routes({ proxies: [silent.at, opens.at] }).open(SERVER, {}, never());
  assert.equal(formatRoute(route), `${opens.at} (--proxy)`);
});

test("a slow route that was cut short gets the time that the others have left", async (t) => {
  t.mock.timers.enable({ apis: ["setTimeout"] });
  const slow = await slowSocks(t, 4_500);
  const gone = await socks(t, 0);
  await gone.close();
  const { route, failed } = await routes({ proxies: [slow.at, gone.at] }).open(SERVER, {}, never());
  assert.equal(formatRoute(route), `${slow.at} (--proxy)`);
  assert.deepEqual(
    failed.map(({ at }) => at),
    [gone.at],
  );
});

test("a slow route that was cut short gets its time in the next attempt, if the others left none", async (t) => {
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

test("a proxy in the environment gets no credentials of others", async (t) => {
  const proxy = await scripted(t, async (peer) => {
    assert.equal(await peer.read(3), "050100");
    peer.write("05ff");
  });
  await rejected(routes({ env: { ALL_PROXY: proxy.at } }), "proxy_auth_required");
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
  return (await routes(options).chooseRoutes(SERVER, never())).map(formatRoute);
}

function pacFile(t: TestContext, answer: string): string {
  return credentialsFile(t, pacScript(answer)).path;
}

const [A, B, C] = ["a", "b", "c"].map(
  (text): ProxyRoute => ({ kind: "proxy", proxy: parseProxyUrl(text), from: "test", isUnverified: false }),
) as [ProxyRoute, ProxyRoute, ProxyRoute];
const ALL = [A, B, C];

const MEMORY_MS = 5 * 60_000;

/** `+B`: the route B worked; `-B`: it failed; a number: this many ms have passed. */
const HISTORIES: readonly [title: string, events: string, order: readonly ProxyRoute[]][] = [
  ["without a history, the order is the one in which routes were named", "", [A, B, C]],
  ["the route that worked last comes first", "+B +C", [C, A, B]],
  ["the route that worked last comes first until it fails", "+B +C -C", [A, B, C]],
  ["routes that failed come behind the others", "-A 1 -B", [C, A, B]],
  ["of routes that failed the one with the latest failure is last", "-A 1 -B 1 -A", [C, B, A]],
  ["a route that works has not failed", "-A +A +B", [B, A, C]],
  ["a failure is remembered for five minutes", `-A ${MEMORY_MS - 1}`, [B, C, A]],
  ["after five minutes a failure is forgotten", `-A ${MEMORY_MS}`, [A, B, C]],
];

for (const [title, events, order] of HISTORIES) {
  test(title, () => {
    let now = 0;
    const memory = new RouteHistory(() => now);
    for (const [, sign, name, ms] of events.matchAll(/([+-])(\w)|(\d+)/g)) {
      const route = ALL["ABC".indexOf(name ?? "")] ?? A;
      if (sign === "+") memory.worked(route);
      else if (sign === "-") memory.failed(route);
      else now += Number(ms);
    }
    assert.deepEqual(memory.order(ALL), order);
  });
}

test("after five minutes it is forgotten that a route was cut short", () => {
  let now = 0;
  const memory = new RouteHistory(() => now);
  memory.failed(A, true);
  now += 5 * 60_000;
  memory.order([B]);
  assert.ok(!memory.wasCutShort(A));
});

test("a route counts as cut short until it fails with all its time, or another one works", () => {
  const memory = new RouteHistory(() => 0);
  memory.failed(A, true);
  memory.failed(B, true);
  assert.deepEqual(memory.order(ALL), [C, A, B]);
  memory.failed(B);
  assert.deepEqual(
    ALL.map((route) => memory.wasCutShort(route)),
    [true, false, false],
  );
  memory.worked(C);
  assert.ok(!memory.wasCutShort(A));
});
