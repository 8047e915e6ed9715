import assert from "node:assert/strict";
import { once } from "node:events";
import { Agent, get, type IncomingMessage, request } from "node:http";
import { connect, type Socket } from "node:net";
import { text } from "node:stream/consumers";
import { afterEach, test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { Registry } from "prom-client";
import { until } from "../basics/testing/wait.ts";
import { ConfigError } from "../config/options.ts";
import type { Check } from "../runtime/check.ts";
import { createLogger } from "../runtime/logger.ts";
import { Instruments } from "../runtime/metrics.ts";
import { ThrottledLog } from "../runtime/throttled-log.ts";
import { type Admin, type AdminOptions, startAdmin } from "./admin.ts";
import { MAX_CONNECTIONS } from "./connections.ts";
import { isOwnHost } from "./pages.ts";

const log = createLogger({ level: "silent", format: "json", name: "test" });

const FLAGS = { option: "--health-port", hostOption: "--health-bind-address" };

const open: Admin[] = [];
afterEach(() => Promise.all(open.splice(0).map((admin) => admin.close())));

/** An admin port that is closed after the test. */
async function start(options: Partial<AdminOptions> = {}): Promise<Admin> {
  const { registry } = new Instruments({ processMetrics: false });
  const common = { metrics: registry, log, throttledLog: new ThrottledLog(log), checks: () => [] };
  const admin = await startAdmin({ port: 0, host: "127.0.0.1", ...FLAGS, ...common, ...options });
  open.push(admin);
  return admin;
}

function dial(admin: Admin): Socket {
  return connect({ port: admin.address.port, host: "127.0.0.1" }).on("error", () => {});
}

/** The bytes that come until the other side ends the connection, after `written` was sent at once. */
async function exchange(admin: Admin, written: string | Buffer): Promise<string> {
  const socket = dial(admin);
  socket.write(written);
  return await text(socket);
}

async function fetchText(admin: Admin, path: string, agent: Agent | false = false) {
  const [response] = await once(get({ host: "127.0.0.1", port: admin.address.port, path, agent }), "response");
  const { statusCode: status, headers } = response as IncomingMessage;
  return { status, type: headers["content-type"] ?? "", body: await text(response) };
}

/** A log, and the lines that it has written. */
function recorded() {
  const lines: string[] = [];
  const destination = { write: (line: string) => void lines.push(line) };
  return { lines, log: createLogger({ level: "info", format: "json", name: "test", destination }) };
}

test("operators see the level of the log and change it while the process runs; the health port does neither", async () => {
  const { lines, log: own } = recorded();
  const admin = await start({ status: () => ({}), log: own });
  const put = (query: string) => exchange(admin, `PUT /log-level${query} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n`);
  assert.match(await put("?level=debug"), /^HTTP\/1.1 200 [\s\S]*\r\n\r\ndebug\n$/);
  assert.equal(own.level, "debug");
  const changed = lines.find((line) => line.includes("log level changed")) ?? assert.fail("not logged");
  assert.match(changed, /^\{"level":"info".*"from":"info","to":"debug"/);
  assert.equal(changed.split('"level":').length, 2, "no field stands twice");
  assert.equal((await fetchText(admin, "/log-level")).body, "debug\n");
  assert.match(await put("?level=loud"), /^HTTP\/1.1 400 [\s\S]*level must be one of trace, debug/);
  assert.match(await put(""), /^HTTP\/1.1 400 /);
  assert.equal(own.level, "debug");
  const health = await start();
  assert.equal((await fetchText(health, "/log-level")).status, 404);
});

test("ready says which condition failed, and which has faults and passes; alive is whoever answers", async () => {
  let checks: Check[] = [{ name: "listeners", ok: true }];
  const admin = await start({ checks: () => checks });
  assert.deepEqual((await fetchText(admin, "/readyz")).body, "ok\n");
  assert.deepEqual((await fetchText(admin, "/ready")).status, 200);
  assert.equal((await fetchText(admin, "/readyz?verbose")).body, "[+]listeners ok\nreadyz check passed\n");

  checks = [{ name: "clusters", ok: true, hasFaults: true, detail: "1 fault: a.yaml is empty" }];
  const faulty = await fetchText(admin, "/readyz?verbose");
  assert.deepEqual([faulty.status, faulty.body], [200, "[!]clusters: 1 fault: a.yaml is empty\nreadyz check passed\n"]);

  checks = [
    { name: "listeners", ok: true },
    { name: "draining", ok: false, detail: "closing since 3s" },
  ];
  const failed = await fetchText(admin, "/readyz");
  assert.equal(failed.status, 503);
  assert.equal(failed.body, "[+]listeners ok\n[-]draining failed: closing since 3s\nreadyz check failed\n");
  for (const path of ["/healthz", "/livez"]) assert.equal((await fetchText(admin, path)).status, 200);
  assert.equal((await fetchText(admin, "/status")).status, 404);
});

test("metrics are in Prometheus' text format, status is JSON and only where asked for", async () => {
  const make = new Instruments({ processMetrics: false });
  make.counter(["things_total"], "Things.").add(2);
  const admin = await start({ metrics: make.registry, status: () => ({ tunnels: [] }) });
  const metrics = await fetchText(admin, "/metrics");
  assert.match(metrics.type, /^text\/plain; version=0\.0\.4/);
  assert.match(metrics.body, /^things_total 2$/m);
  assert.deepEqual(JSON.parse((await fetchText(admin, "/status")).body), { tunnels: [] });
  assert.equal((await fetchText(admin, "/nothing")).status, 404);
});

test("closing does not wait for idle or half-open connections", async () => {
  const admin = await start();
  const agent = new Agent({ keepAlive: true });
  await fetchText(admin, "/healthz", agent);
  const silent = connect(admin.address.port, "127.0.0.1").resume();
  await once(silent, "connect");
  const before = performance.now();
  await Promise.all([admin.close(), admin.close(), once(silent, "close")]);
  assert.ok(performance.now() - before < 4_000, "it waited for a timeout of a connection");
  agent.destroy();
});

test("garbage on the port ends that connection alone", async () => {
  const admin = await start();
  const socket = connect(admin.address.port, "127.0.0.1").resume();
  socket.on("error", () => {});
  socket.write(Buffer.from([0x16, 3, 1, 0, 0xff, 0, 0]));
  await once(socket, "close");
  assert.equal((await fetchText(admin, "/healthz")).status, 200);
});

test("a port in use is reported with the flag that moves it", async () => {
  const first = await start();
  await assert.rejects(start({ port: first.address.port }), (error: unknown) => {
    assert.ok(error instanceof ConfigError);
    assert.match(error.message, /^Cannot listen on 127\.0\.0\.1 port \d+: it is in use .* \(--health-port\)\.$/);
    return true;
  });
});

test("an empty host is every interface", async () => {
  const admin = await start({ host: "" });
  assert.match(admin.address.address, /^(::|0\.0\.0\.0)$/); // the second one where there is no IPv6
  assert.equal((await fetchText(admin, "/livez")).body, "ok\n");
});

const GET = "GET /livez HTTP/1.1\r\nHost: x\r\n\r\n";

test("one request of each connection is answered, whatever stands behind it, and the connection ends", async () => {
  const asked: unknown[] = [];
  const trial = async (body: unknown) => asked.push(body);
  const admin = await start({ trial });
  const post = 'POST /trial HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 7\r\n\r\n{"a":1}';
  for (const first of [GET, "GET /livez HTTP/1.0\r\nHost: x\r\nConnection: keep-alive\r\n\r\n", post]) {
    const answers = await exchange(admin, first + post.repeat(100));
    assert.equal(answers.match(/HTTP\/1\.1 /g)?.length, 1, first);
    assert.match(answers, /^HTTP\/1\.1 200 OK\r\n/);
    assert.match(answers, /^connection: close\r$/im);
  }
  assert.deepEqual(asked, [{ a: 1 }]);
});

test("a body may come in pieces, and is bounded", async () => {
  const admin = await start({ trial: async (body) => body });
  const socket = dial(admin);
  for (const piece of [
    "POST /trial HTTP/1.1\r\nHost: x\r\nContent-Type: appl",
    "ication/json\r\nContent-Length: 7\r\n\r\n",
    '{"a"',
    ":1}",
  ]) {
    socket.write(piece);
    await sleep(20);
  }
  assert.match(await text(socket), /\r\n\r\n\{"a":1\}$/);
  const head = "POST /trial HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n";
  assert.match(await exchange(admin, `${head}Content-Length: 1025\r\n\r\n${"x".repeat(1_025)}`), /^HTTP\/1\.1 413 /);
  assert.match(await exchange(admin, `${head}Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n`), /^HTTP\/1\.1 411 /);
});

test("a request that no page answers gets a sentence, and a page that fails is logged", async () => {
  const { lines, log: own } = recorded();
  const fail = () => assert.fail("broken");
  const admin = await start({
    trial: async (asked) => asked,
    status: async () => fail(),
    throttledLog: new ThrottledLog(own),
  });
  const post = (type: string, body: string) =>
    exchange(
      admin,
      `POST /trial HTTP/1.1\r\nHost: x\r\nContent-Type: ${type}\r\nContent-Length: ${body.length}\r\n\r\n${body}`,
    );
  assert.match(await post("text/plain", "{}"), /^HTTP\/1.1 415 [\s\S]*\nthe body must be application\/json\n$/);
  assert.match(await post("application/json", "{"), /^HTTP\/1.1 400 [\s\S]*\nthe body is not JSON\n$/);
  assert.match(await exchange(admin, "HEAD /livez HTTP/1.1\r\nHost: x\r\n\r\n"), /^HTTP\/1.1 200 [\s\S]*\r\n\r\n$/);
  assert.match(
    await exchange(admin, "POST /live HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n"),
    /^HTTP\/1.1 404 [\s\S]*\nthis port has: GET \/metrics, GET \/healthz, /,
  );
  assert.deepEqual(await fetchText(admin, "/status").then(({ status, body }) => [status, body]), [
    500,
    "this page failed: the log says why\n",
  ]);
  assert.match(lines.find((line) => line.includes("a page failed")) ?? "", /broken.*"path":"\/status"/);
});

test("who ends its side behind the request is answered; half a request is not", async () => {
  const admin = await start();
  const whole = dial(admin);
  whole.end(GET);
  assert.match(await text(whole), /^HTTP\/1\.1 200 OK/);
  const half = dial(admin);
  half.end(GET.slice(0, -2));
  assert.equal(await text(half), "");
});

test("a long answer comes whole to a reader that takes longer than the linger, though more was sent than is read", async () => {
  const registry = new Registry();
  const long = "x".repeat(8 * 1024 * 1024);
  registry.metrics = async () => long;
  const admin = await start({ metrics: registry });
  const socket = dial(admin);
  socket.write("GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n".repeat(500));
  socket.pause();
  await sleep(1_500);
  const answer = await text(socket);
  assert.equal(answer.length - answer.indexOf("\r\n\r\n") - 4, long.length);
});

test("metrics are rendered once for all who ask at a time, and for a second", async () => {
  const registry = new Registry();
  let renderings = 0;
  registry.metrics = async () => {
    renderings++;
    await sleep(50);
    return `rendering ${renderings}\n`;
  };
  const admin = await start({ metrics: registry });
  const bodies = await Promise.all(Array.from({ length: 20 }, async () => (await fetchText(admin, "/metrics")).body));
  assert.deepEqual(new Set(bodies), new Set(["rendering 1\n"]));
  await until(async () => (await fetchText(admin, "/metrics")).body !== "rendering 1\n");
  assert.equal(renderings, 2);
});

test("who holds connections displaces its own, and a probe is answered", async () => {
  const admin = await start();
  const idle: Socket[] = [];
  let ended = 0;
  for (let index = 0; index < MAX_CONNECTIONS + 40; index++) {
    const socket = dial(admin).resume();
    socket.on("close", () => ended++);
    await once(socket, "connect");
    idle.push(socket);
  }
  assert.equal((await fetchText(admin, "/livez")).body, "ok\n");
  await until(() => ended >= 40);
  assert.ok(ended <= 41, `${ended} were dropped`);
  assert.ok(
    idle.slice(0, 40).every(({ closed }) => closed),
    "the oldest",
  );
  for (const socket of idle) socket.destroy();
});

test("whatever a request asks for, it is answered once and at once, and a wrong Host first", async () => {
  const admin = await start({ status: () => ({}), allowedHosts: [] });
  const ask = (line: string, host: string) => exchange(admin, `${line} HTTP/1.1\r\nHost: ${host}\r\n\r\n`);
  for (const path of [
    "/%zz",
    "/%6civez",
    "*",
    "ftp://localhost/livez",
    "//livez",
    "/livez/",
    "/LIVEZ",
    "/livez;a",
    "/é",
  ]) {
    for (const method of ["GET", "PURGE", "HEAD"]) {
      const answer = await ask(`${method} ${path}`, "localhost");
      assert.match(answer, /^HTTP\/1\.1 40[04] /, `${method} ${path}`);
      assert.match(answer, /^connection: close\r$/im);
      if (answer.includes(" 404 ")) assert.match(await ask(`${method} ${path}`, "evil.example"), /^HTTP\/1\.1 421 /);
    }
  }
  assert.match(await ask("PUT /log-level?level=%64ebug", "localhost"), /^HTTP\/1\.1 200 /);
});

test("a body without use is no fault, and a check needs the type of its body", async () => {
  const admin = await start({ status: () => ({}), trial: async (body) => body });
  const post = (first: string, type: string, body: string) =>
    exchange(admin, `${first} HTTP/1.1\r\nHost: x\r\n${type}Content-Length: ${body.length}\r\n\r\n${body}`);
  const form = "Content-Type: application/x-www-form-urlencoded\r\n";
  assert.match(await post("PUT /log-level?level=silent", form, ""), /^HTTP\/1\.1 200 /);
  assert.match(await post("PUT /log-level?level=silent", form, "a=b"), /^HTTP\/1\.1 200 /);
  assert.match(await post("POST /trial", "", "{}"), /^HTTP\/1\.1 415 /);
  assert.match(
    await post("POST /trial", "Content-Type: application/json; charset=utf-8\r\n", "{}"),
    /^HTTP\/1\.1 200 /,
  );
});

test("a known path with another method is answered with the methods that it has", async () => {
  const admin = await start({ status: () => ({}), trial: async () => ({}) });
  for (const [asked, allow] of [
    ["POST /livez", "GET, HEAD"],
    ["OPTIONS /log-level", "GET, PUT, HEAD"],
    ["GET /trial", "POST"],
  ] as const) {
    const answer = await exchange(admin, `${asked} HTTP/1.1\r\nHost: x\r\n\r\n`);
    assert.match(
      answer,
      new RegExp(`^HTTP/1\\.1 405 [\\s\\S]*\nallow: ${allow}\r\n[\\s\\S]*\nthis path takes: ${allow}\n$`),
    );
  }
});

test("the absolute form of a request is taken, and its authority is checked in the place of Host", async () => {
  const admin = await start({ allowedHosts: [], status: () => ({}), checks: () => [{ name: "a", ok: true }] });
  const statusOf = async (url: string, host: string) =>
    (await exchange(admin, `GET ${url} HTTP/1.1\r\nHost: ${host}\r\n\r\n`)).slice(9, 12);
  assert.equal(await statusOf("http://localhost/healthz", "localhost"), "200");
  assert.equal(await statusOf("HTTP://127.0.0.1:8095/status?x", "evil.example"), "200");
  for (const authority of ["evil.example", "localhost@evil.example", "user@localhost", ""])
    assert.equal(await statusOf(`http://${authority}/status`, "localhost"), "421", authority);
  assert.equal(await statusOf("http://localhost", "localhost"), "404");
});

test("a Host that is no address is refused where names are given, on every path", async () => {
  const admin = await start({ allowedHosts: ["admin.example"], status: () => ({}), trial: async () => ({}) });
  const statusFor = (host: string, path: string, method = "GET"): Promise<number | undefined> =>
    new Promise((resolve, reject) => {
      const { port } = admin.address;
      const asking = request({ host: "127.0.0.1", port, path, method, headers: { host }, agent: false }, (response) =>
        resolve(response.resume().statusCode),
      );
      asking.on("error", reject).end(method === "POST" ? "{}" : undefined);
    });
  for (const path of ["/status", "/metrics", "/readyz", "/livez", "/nothing"])
    assert.equal(await statusFor("rebound.example:8095", path), 421, path);
  assert.equal(await statusFor("rebound.example", "/trial", "POST"), 421);
  for (const host of ["127.0.0.1:8095", "[::1]:8095", "localhost", "admin.example:1"])
    assert.equal(await statusFor(host, "/status"), 200, host);
  const answer = await exchange(admin, "GET /status HTTP/1.1\r\nHost: evil.example\r\n\r\n");
  assert.match(answer, /"evil\.example" is no IP address, not localhost and not in --admin-allowed-hosts\n$/);
});

test("a CONNECT to the admin port is told which port that is", async () => {
  const admin = await start({ status: () => ({}) });
  const said = await exchange(admin, "CONNECT a:1 HTTP/1.1\r\nHost: x\r\n\r\n");
  assert.match(
    said,
    /^HTTP\/1\.1 405 [\s\S]*\nthis is the admin port \(\/status, \/metrics\), which takes no CONNECT: /,
  );
});

test("what is no HTTP/1, and who leaves Host out, is answered and not held", async () => {
  const admin = await start();
  const noHttp =
    /^HTTP\/1\.1 400 Bad Request\r\n[\s\S]*\r\n\r\nthis is not an HTTP\/1\.1 request: this port speaks plain HTTP/;
  const cases: [bytes: string | Buffer, answer: RegExp][] = [
    ["PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", noHttp],
    ["GET / HTTP/1.1\n\n", noHttp],
    ["hello\r\n\r\n", noHttp],
    ["\0".repeat(200_000), noHttp],
    ["PROXY TCP4 1.2.3.4 1.2.3.4 1 2\r\nGET / HTTP/1.1\r\n\r\n", noHttp],
    [
      Buffer.from([0x16, 3, 1, 0, 0xff, 0, 0]),
      /^HTTP\/1\.1 400 [\s\S]*\r\n\r\nthis is TLS, and this port speaks plain HTTP/,
    ],
    [`GET / HTTP/1.1\r\nX: ${"x".repeat(9_000)}`, /^HTTP\/1\.1 431 [\s\S]*too large/],
    ["CONNECT a:1 HTTP/1.1\r\nHost: x\r\n\r\n", /^HTTP\/1\.1 405 [\s\S]*\nthis is the health port, .*--server-port/],
    [
      "GET /livez HTTP/1.1\r\nHost: x\r\nExpect: y\r\n\r\n",
      /^HTTP\/1\.1 417 [\s\S]*\nthis port knows no other Expect than/,
    ],
  ];
  for (const [bytes, answer] of cases) {
    const said = await exchange(admin, bytes);
    assert.match(said, answer);
    assert.equal(said.match(/HTTP\/1\.1 \d/g)?.length, 1, "one answer");
    assert.match(said, /^connection: close\r$/im);
  }
  for (const hosts of ["", "Host: x\r\nHost: x\r\n"])
    assert.match(
      await exchange(admin, `GET /livez HTTP/1.1\r\n${hosts}\r\n`),
      /^HTTP\/1\.1 400 [\s\S]*\nan HTTP\/1\.1 request needs one Host header, and no second one\n$/,
    );
  assert.match(await exchange(admin, "GET /livez HTTP/1.0\r\n\r\n"), /^HTTP\/1\.1 200 /);
  assert.match(
    await exchange(admin, "GET /livez HTTP/1.1\r\nHost: x\r\nUpgrade: y\r\nConnection: upgrade\r\n\r\n"),
    /200/,
  );
});

const ALLOWED = ["Admin.Example", "culvert-server"];

const TABLE: ReadonlyArray<readonly [host: string | undefined, isOwn: boolean]> = [
  ["127.0.0.1", true],
  ["127.0.0.1:8095", true],
  ["10.1.2.3:1", true],
  ["[::1]", true],
  ["[::1]:8095", true],
  ["[fd00::5]:", true],
  ["localhost", true],
  ["LocalHost:8095", true],
  ["localhost.", true],
  ["admin.example:8095", true],
  ["ADMIN.EXAMPLE", true],
  ["culvert-server", true],
  [undefined, false],
  ["", false],
  [":8095", false],
  ["evil.example", false],
  ["evil.example:8095", false],
  ["localhost.evil.example", false],
  ["127.0.0.1.evil.example", false],
  ["2130706433", false],
  ["0x7f.1", false],
  ["::1", false],
  ["[evil.example]", false],
  ["[::1].evil.example", false],
  ["[]", false],
  ["sub.admin.example", false],
  ["localhost:8095:1", false],
  ["evil.example/localhost", false],
  ["user@localhost", false],
];

for (const [host, isOwn] of TABLE) {
  test(`Host ${host ?? "missing"}: ${isOwn ? "the admin port answers" : "refused"}`, () => {
    assert.equal(isOwnHost(host, ALLOWED), isOwn);
  });
}
