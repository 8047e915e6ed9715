import assert from "node:assert/strict";
import { once } from "node:events";
import { createServer, type RequestListener } from "node:http";
import { type AddressInfo, connect, type Socket } from "node:net";
import { text } from "node:stream/consumers";
import { type TestContext, test } from "node:test";
import { connect as connectTls } from "node:tls";
import { auditFile } from "../../server/audit/testing/trail.ts";
import { SUBJECT } from "../../server/tokens/testing/tokens.ts";
import { until } from "../../shared/basics/testing/wait.ts";
import { ClusterFolder } from "../harness/cluster-files.ts";
import { startClusterServer } from "../harness/cluster-server.ts";
import { curl } from "../harness/curl.ts";
import { HttpPortWorld } from "../harness/http-port.ts";
import { captureLog } from "../harness/log-lines.ts";
import { scrapeRegistry } from "../harness/scrape.ts";
import { freePort } from "../harness/targets/absent.ts";
import { TARGETS } from "../harness/targets.ts";
import { TempDir } from "../harness/temp.ts";

const HELLO = "hello from the target\n";
const BYTES = 3_000_000;

/** A target of http:// URLs; returns the beginning of its URLs. */
async function httpTarget(t: TestContext, listener: RequestListener): Promise<string> {
  const server = createServer(listener);
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  t.after(() => server.close());
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
}

/** A connection to the port, which has sent these bytes. */
function sent(world: HttpPortWorld, bytes: string): Socket {
  const socket = connect({ host: "127.0.0.1", port: world.port }).on("error", () => {});
  socket.write(bytes);
  return socket;
}

const basic = (login: string): string => `Proxy-Authorization: Basic ${Buffer.from(login).toString("base64")}\r\n`;

test("curl reaches targets by CONNECT and by whole URLs, with a token as password or as Bearer", async () => {
  await using world = await HttpPortWorld.start();
  await using http = await TARGETS.http();
  await using https = await TARGETS.https();
  const url = `http://${http.address}`;
  const proxy = ["-x", `http://${await world.login()}@127.0.0.1:${world.port}`];
  for (const args of [[`${url}/`], ["--proxytunnel", `${url}/`], ["-k", `https://${https.address}/`]]) {
    assert.equal(await curl(...proxy, ...args), HELLO, args.join(" "));
  }
  assert.equal((await curl(...proxy, `${url}/bytes/${BYTES}`)).length, BYTES);
  const bearer = ["--proxy-header", `Proxy-Authorization: Bearer ${await world.token()}`];
  assert.equal(await curl("-x", `http://127.0.0.1:${world.port}`, ...bearer, `${url}/`), HELLO);
  const metrics = await scrapeRegistry(world.server.metrics.registry);
  await until(
    () => metrics.value("culvert_server_connections_total", { cluster: "blue", outcome: "ok" }) >= 5,
    "all are counted as CONNECTs are",
  );
});

test("a request is passed on with its body and its own fields, and without the token", async (t) => {
  await using world = await HttpPortWorld.start();
  const url = await httpTarget(t, async (asked, answer) => {
    const body = await text(asked);
    answer.setHeader("Connection", "X-Secret, keep-alive");
    answer.setHeader("X-Secret", "1");
    answer.end(JSON.stringify({ url: asked.url, headers: asked.headers, body }));
  });
  const proxy = ["-x", `http://${await world.login()}@127.0.0.1:${world.port}`];
  const large = "b".repeat(2_000_000);
  for (const [body, ...args] of [
    ["", "-H", "X-Own: 1"],
    ["chunked", "-H", "Transfer-Encoding: chunked", "-H", "X-Own: 1", "-d", "chunked"],
    ["waits", "-H", "Expect: 100-continue", "-H", "X-Own: 1", "-d", "waits"],
  ] as const) {
    const answer = await curl("-i", ...proxy, ...args, `${url}/path?query=1`);
    const [head = "", json = ""] = answer.split(/\r\n\r\n(?=\{)/);
    const { url: path, headers, body: got } = JSON.parse(json);
    assert.deepEqual([path, got, headers["x-own"], headers.via], ["/path?query=1", body, "1", "1.1 culvert"]);
    assert.deepEqual([headers.host, headers["proxy-authorization"]], [url.slice("http://".length), undefined]);
    assert.match(head, /^connection: close$/im);
    assert.doesNotMatch(head, /secret/i);
  }
  const post = sent(world, `POST ${url}/ HTTP/1.1\r\nHost: x\r\n${basic(await world.login())}`);
  post.write(`Content-Length: ${large.length}\r\n\r\n${large}`);
  assert.ok((await text(post)).includes(large));
});

test("a connection takes one request: the next one reaches no target", async (t) => {
  await using world = await HttpPortWorld.start();
  const asked: (string | undefined)[] = [];
  const url = await httpTarget(t, ({ url }, answer) => {
    asked.push(url);
    answer.end("hello");
  });
  const request = (path: string, login: string): string =>
    `GET ${url}${path} HTTP/1.1\r\nHost: x\r\nConnection: keep-alive\r\n${basic(login)}\r\n`;
  const login = await world.login();
  const socket = sent(world, request("/first", login));
  const [first] = await once(socket, "data");
  assert.match(String(first), /^HTTP\/1\.1 200 /);
  socket.write(request("/second", login));
  await once(socket.resume(), "close");
  for (const behind of [request("/second", login), "no HTTP", "\r\n"]) {
    const all = await text(sent(world, request("/first", login) + behind));
    assert.match(all, /^HTTP\/1\.1 200 [\s\S]*hello/, "bytes behind the request do not cost its answer");
    assert.equal(all.split("HTTP/1.1").length, 2);
  }
  const post = `POST ${url}/first HTTP/1.1\r\nHost: x\r\n${basic(login)}Content-Length: 2\r\n\r\n`;
  assert.match(await text(sent(world, `${post}12345`)), /^HTTP\/1\.1 200 [\s\S]*hello/);
  assert.ok(!asked.includes("/second"));
});

test("a body with another transfer coding than chunked is refused, since it would lose it", async (t) => {
  await using world = await HttpPortWorld.start();
  let requests = 0;
  const url = await httpTarget(t, (_asked, answer) => {
    requests++;
    answer.end("hello");
  });
  const login = basic(await world.login());
  const post = (coding: string): string =>
    `POST ${url}/ HTTP/1.1\r\nHost: x\r\n${login}Transfer-Encoding: ${coding}\r\n\r\n2\r\nhi\r\n0\r\n\r\n`;
  for (const coding of ["gzip, chunked", "gzip\r\nTransfer-Encoding: chunked"]) {
    assert.match(await text(sent(world, post(coding))), /^HTTP\/1\.1 501 Transfer-Encoding has another coding/);
  }
  assert.equal(requests, 0);
  assert.match(await text(sent(world, post("Chunked"))), /^HTTP\/1\.1 200 /);
});

test("a body whose chunks are malformed ends the connection", async (t) => {
  await using world = await HttpPortWorld.start();
  const url = await httpTarget(t, (asked) => void asked.resume());
  const post = `POST ${url}/ HTTP/1.1\r\nHost: x\r\n${basic(await world.login())}Transfer-Encoding: chunked\r\n\r\n`;
  await text(sent(world, `${post}2\r\nhi\r\nno length\r\n`)).catch(() => {});
});

test("a request that comes to no cluster is counted, and on the list of refusals", async () => {
  await using world = await HttpPortWorld.start();
  const { metrics } = world.server;
  await text(sent(world, `CONNECT 10.0.0.1:443 HTTP/1.1\r\nHost: x\r\n${basic("absent:x")}\r\n`));
  await text(sent(world, "GET http://10.0.0.2/ HTTP/1.1\r\nHost: x\r\n\r\n"));
  const scraped = await scrapeRegistry(metrics.registry);
  assert.equal(scraped.value("culvert_server_connections_total", { cluster: "", outcome: "unauthenticated" }), 2);
  const listed = metrics.refusals.list().map(({ side, code, from, target }) => [side, code, from, target]);
  assert.deepEqual(listed, [
    ["caller", "unauthenticated", "127.0.0.1", "10.0.0.2:80"],
    ["caller", "unauthenticated", "127.0.0.1", "10.0.0.1:443"],
  ]);
});

test("a port in clear is a warning at the start where no cluster takes tokens of callers", async () => {
  using folder = await ClusterFolder.create(["blue"]);
  for (const [httpBindAddress, warnings] of [
    ["127.0.0.1", 1],
    ["0.0.0.0", 0], // a certificate does there
  ] as const) {
    const { log, lines } = captureLog();
    using _server = await startClusterServer(folder, { httpPort: await freePort(), httpBindAddress }, log);
    const warned = lines.filter(({ level, msg }) => level === "warn" && /^--http-port refuses everybody/.test(msg));
    assert.equal(warned.length, warnings);
  }
  const { log, lines } = captureLog();
  await using _world = await HttpPortWorld.start({ log });
  assert.ok(!lines.some(({ msg }) => /^--http-port refuses everybody/.test(msg)));
});

test("clients without a good token, and requests that are no proxy's, are refused with a sentence", async () => {
  await using world = await HttpPortWorld.start({ others: ["green", "plain"], withTokens: ["green"] });
  const login = await world.login();
  const token = await world.token();
  const whole = "GET http://10.0.0.1/ HTTP/1.1\r\nHost: x\r\n";
  const connect = "CONNECT 10.0.0.1:443 HTTP/1.1\r\nHost: x\r\n";
  for (const [request, answer] of [
    [
      `${whole}\r\n`,
      /^HTTP\/1\.1 407 a token is needed.*\r\nProxy-Authenticate: Bearer.*\r\nProxy-Authenticate: Basic/,
    ],
    [`${connect}\r\n`, /^HTTP\/1\.1 407 a token is needed/],
    [`${whole}${basic(`green:${token}`)}\r\n`, /^HTTP\/1\.1 407 the token is for "blue", not for "green"/],
    [`${connect}${basic(`blue:${token.slice(0, -4)}`)}\r\n`, /^HTTP\/1\.1 407 /],
    [`${connect}${basic(`plain:${token}`)}\r\n`, /^HTTP\/1\.1 407 no cluster "plain" takes tokens/],
    [`${connect}${basic(`absent:${token}`)}\r\n`, /^HTTP\/1\.1 407 no cluster "absent" takes tokens/],
    [`${connect}Proxy-Authorization: Bearer ${token}\r\n\r\n`, /^HTTP\/1\.1 407 Bearer does not say of which cluster/],
    [`${connect}${basic(login)}${basic(login)}\r\n`, /^HTTP\/1\.1 400 .*two Proxy-Authorization/],
    [`GET http://:/ HTTP/1.1\r\nHost: x\r\n${basic(login)}\r\n`, /^HTTP\/1\.1 400 /],
    [`GET / HTTP/1.1\r\nHost: x\r\n${basic(login)}\r\n`, /^HTTP\/1\.1 400 this is an HTTP proxy/],
    [`GET https://10.0.0.1/ HTTP/1.1\r\nHost: x\r\n${basic(login)}\r\n`, /^HTTP\/1\.1 400 this is an HTTP proxy/],
    ["PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", /^HTTP\/1\.1 400 this is an HTTP proxy/],
    ["no HTTP\r\n\r\n", /^HTTP\/1\.1 400 /],
  ] as const) {
    assert.match(await text(sent(world, request)), answer, request);
  }
});

test("a request that comes to no cluster is in the audit trail, without its token", async () => {
  using folder = new TempDir();
  const auditLog = folder.file("audit");
  await using world = await HttpPortWorld.start({ server: { auditLog } });
  const token = await world.token();
  const connect = "CONNECT 10.0.0.1:443 HTTP/1.1\r\nHost: x\r\n";
  await text(sent(world, `${connect}${basic(`absent:${token}`)}\r\n`));
  await text(sent(world, "GET http://10.0.0.2/ HTTP/1.1\r\nHost: x\r\n\r\n"));
  const lines = auditFile(auditLog).filter(({ kind }) => kind === "connect");
  const facts = lines.map((line) => [line["decision"], line["rule"], line["target"], "cluster" in line]);
  assert.deepEqual(facts, [
    ["refused", "unauthenticated", "10.0.0.1:443", false],
    ["refused", "unauthenticated", "10.0.0.2:80", false],
  ]);
  assert.match(String(lines[0]?.["reason"]), /^no cluster "absent" takes tokens/);
  assert.ok(!JSON.stringify(lines).includes(token));
});

test("a CONNECT and a request for a whole URL are in the audit trail with the subject of the token", async () => {
  await using http = await TARGETS.http();
  using folder = new TempDir();
  const auditLog = folder.file("audit");
  await using world = await HttpPortWorld.start({ server: { auditLog } });
  const proxy = ["-x", `http://${await world.login()}@127.0.0.1:${world.port}`];
  const lines = () => auditFile(auditLog).filter(({ kind }) => kind === "connect");
  for (const [at, args] of [[], ["--proxytunnel"]].entries()) {
    assert.equal(await curl(...proxy, ...args, `http://${http.address}/`), HELLO);
    await until(() => lines().length === 2 * (at + 1));
    const [decision, end] = lines().slice(-2);
    const facts = ["cluster", "target", "address", "decision", "identity"].map((field) => decision?.[field]);
    const identity = { by: "token", subject: SUBJECT };
    assert.deepEqual(facts, ["blue", http.address, http.address, "allowed", identity]);
    assert.deepEqual([end?.event, end?.id, end?.["outcome"]], ["end", decision?.id, "ok"]);
    assert.ok(Number(end?.["bytesDown"]) >= HELLO.length);
  }
});

test("a target that cannot be reached is told in the status line, whatever the request", async () => {
  await using world = await HttpPortWorld.start();
  const proxy = ["-x", `http://${await world.login()}@127.0.0.1:${world.port}`];
  const refused = await curl("-i", ...proxy, "http://127.0.0.1:1/");
  assert.match(refused, /^HTTP\/1\.1 502 127\.0\.0\.1:1 refused the connection.*\r\nProxy-Status: culvert; error=/);
  const itself = await curl("-i", ...proxy, `http://127.0.0.1:${world.port}/`);
  assert.match(itself, /^HTTP\/1\.1 403 .*this server/);
  world.stopAgent();
  await until(async () => {
    const away = await curl("-i", ...proxy, "http://127.0.0.1:1/");
    return /^HTTP\/1\.1 503 .*agent/.test(away);
  }, "the sentence of a cluster without agents");
});

test("an answer that ends too early is cut for the client, too", async (t) => {
  await using world = await HttpPortWorld.start();
  const url = await httpTarget(t, (_asked, answer) => {
    answer.write("half");
    setImmediate(() => answer.destroy());
  });
  const proxy = ["-x", `http://${await world.login()}@127.0.0.1:${world.port}`];
  const { code } = await curl(...proxy, url).catch((error) => error);
  assert.ok([18, 56].includes(code), `curl says that the transfer is not whole (${code})`);
  const silent = await httpTarget(t, (_asked, answer) => void answer.destroy());
  assert.match(await curl("-i", ...proxy, silent), /^HTTP\/1\.1 502 the target ended the connection/);
});

test("a client that leaves ends its request at the target", async (t) => {
  await using world = await HttpPortWorld.start();
  let open = 0;
  const url = await httpTarget(t, (_asked, answer) => {
    open++;
    answer.write("half");
    answer.on("close", () => open--);
  });
  const socket = sent(world, `GET ${url}/ HTTP/1.1\r\nHost: x\r\n${basic(await world.login())}\r\n`);
  await once(socket, "data");
  assert.equal(open, 1);
  socket.destroy();
  await until(() => open === 0);
});

test("a removed cluster ends the connections of its callers, also of those that read nothing", async (t) => {
  await using world = await HttpPortWorld.start({ server: { drainTimeoutMs: 100 } });
  await using source = await TARGETS.source();
  const url = await httpTarget(t, (_asked, answer) => void answer.write("half"));
  const login = basic(await world.login());
  const sockets: Socket[] = [];
  for (const request of [`GET ${url}/`, `CONNECT ${source.address}`]) {
    const socket = sent(world, `${request} HTTP/1.1\r\nHost: x\r\n${login}\r\n`);
    await once(socket, "data");
    socket.pause();
    // A client that does not read notices a reset when it writes.
    const beats = setInterval(() => socket.write("x"), 20);
    socket.on("close", () => clearInterval(beats));
    t.after(() => socket.destroy());
    sockets.push(socket);
  }
  await world.folder.get("blue").remove();
  await until(() => sockets.every(({ destroyed }) => destroyed));
});

test("beyond loopback the port speaks TLS by the callers' certificates, and never agrees on HTTP/2", async () => {
  const server = { httpBindAddress: "0.0.0.0" };
  await using world = await HttpPortWorld.start({ others: ["green"], withTokens: ["green"], server });
  await using http = await TARGETS.http();
  const blue = world.folder.get("blue");
  const offer = async (...ALPNProtocols: string[]) => {
    const options = { host: "127.0.0.1", port: world.port, servername: blue.sni, ca: blue.ca, ALPNProtocols };
    const socket = connectTls(options);
    await once(socket, "secureConnect");
    socket.destroy();
    return socket.alpnProtocol;
  };
  assert.equal(await offer("h2", "http/1.1"), "http/1.1");
  await assert.rejects(offer("h2"));
  const proxy = ["--proxy-insecure", "-x", `https://${await world.login()}@${blue.sni}:${world.port}`];
  const at = ["--resolve", `${blue.sni}:${world.port}:127.0.0.1`];
  assert.equal(await curl(...at, ...proxy, `http://${http.address}/`), HELLO);
  assert.equal(await curl(...at, ...proxy, "--proxytunnel", `http://${http.address}/`), HELLO);
  for (const args of [[], ["--proxytunnel"]]) {
    const other = ["--proxy-insecure", "-x", `https://${await world.login("green")}@${blue.sni}:${world.port}`];
    const answer = await curl("-i", ...at, ...other, ...args, `http://${http.address}/`).catch(({ stdout }) => stdout);
    assert.match(
      String(answer),
      /^HTTP\/1\.1 407 the token came with the name of cluster "green", which is not served/,
    );
  }
  const { stderr } = await curl("-x", `http://127.0.0.1:${world.port}`, "http://10.0.0.1/").catch((error) => error);
  assert.match(stderr, /Empty reply|reset|HTTP\/0.9/i);
});
