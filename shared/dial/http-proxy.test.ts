import assert from "node:assert/strict";
import { once } from "node:events";
import net from "node:net";
import { test } from "node:test";
import tls from "node:tls";
import { gzipSync } from "node:zlib";
import { freePort } from "../../e2e/harness/targets/absent.ts";
import { until } from "../basics/testing/wait.ts";
import { trustIn } from "../tls/authorities.ts";
import { openThroughProxy } from "./http-proxy.ts";
import { formatProxy } from "./proxy-route.ts";
import { OK } from "./testing/guarded-proxy.ts";
import { faultOf, open, read, ScriptedProxy, testCertificates } from "./testing/scripted-proxy.ts";

/** A proxy that gives every CONNECT this answer. */
function answering(answer: string | Buffer, end = false): Promise<ScriptedProxy> {
  return ScriptedProxy.start({
    onRequest: (_request, socket) => void (end ? socket.end(answer) : socket.write(answer)),
  });
}

test("a CONNECT names its target, and every 2xx opens the tunnel", async () => {
  for (const answer of [
    OK,
    "HTTP/1.0 200\r\n\r\n",
    "HTTP/1.1 204 No\nX: y\n\n",
    "HTTP/1.1 299 \r\nContent-Length: 5\r\n\r\n",
  ]) {
    await using proxy = await ScriptedProxy.start({
      onRequest: (_request, socket) => {
        socket.write(answer);
        socket.pipe(socket);
      },
    });
    const socket = await open(proxy);
    assert.equal(proxy.requests[0]?.line, "CONNECT agents.example:443 HTTP/1.1");
    assert.equal(proxy.requests[0]?.fields.get("host"), "agents.example:443");
    assert.equal(proxy.requests[0]?.fields.has("proxy-authorization"), false);
    socket.write("hello");
    assert.equal(await read(socket, 5), "hello");
    socket.destroy();
  }
});

test("bytes behind the answer are the tunnel's, also with an end right behind them", async () => {
  await using proxy = await answering(`${OK}early words`, true);
  const socket = await open(proxy);
  assert.equal(await read(socket, 11), "early words");
  assert.ok(socket.listenerCount("error") > 0);
});

test("an answer that comes a byte at a time is read, and interim answers are passed over", async () => {
  await using proxy = await ScriptedProxy.start({
    onRequest: async (_request, socket) => {
      socket.setNoDelay(true);
      for (const byte of `HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: <x>\r\n\r\n${OK}z`) {
        socket.write(byte);
        await new Promise(setImmediate);
      }
    },
  });
  const socket = await open(proxy);
  assert.equal(await read(socket, 1), "z");
  socket.destroy();
});

test("an IPv6 destination goes in brackets", async () => {
  await using proxy = await answering(OK);
  const to = { host: "2001:db8::1", port: 8443 };
  const socket = await openThroughProxy(
    proxy.url,
    to,
    { credentials: async () => undefined },
    AbortSignal.timeout(20_000),
  );
  assert.equal(proxy.requests[0]?.line, "CONNECT [2001:db8::1]:8443 HTTP/1.1");
  socket.destroy();
});

test("an answer that is not HTTP fails at once, and at most 16 KiB are kept", async () => {
  const cases = [
    ["SSH-2.0-OpenSSH_9.2\r\n", /does not speak HTTP\/1: is this the address/],
    ["\x15\x03\x01\x00\x02\x02\x46", /speaks TLS where plain HTTP is expected: is it an https:\/\/ proxy\?/],
    ["HTTP/1.1 OK\r\n\r\n", /invalid status line/],
    ["HTTP/1.1 200 OK\r\nno colon\r\n\r\n", /invalid header/],
    ["HTTP/1.1 200 OK\r\nX: a\rb\r\n\r\n", /invalid header/],
    ["HTTP/1.1 200 OK\r\nX: a\0b\r\n\r\n", /invalid header/],
    ["HTTP/1.1 101 Switching Protocols\r\n\r\n", /upgrade to another protocol/],
    [`HTTP/1.1 200 OK\r\nX: ${"x".repeat(10_000_000)}`, /header longer than 16 KiB/],
    ["HTTP/1.1 100 Continue\r\n\r\n".repeat(1_000), /header longer than 16 KiB/],
  ] as const;
  for (const [answer, sentence] of cases) {
    await using proxy = await ScriptedProxy.start({
      onRequest: (_request, socket) => void socket.write(Buffer.from(answer, "latin1")),
    });
    const fault = await faultOf(open(proxy));
    assert.equal(fault.fault, "proxy_protocol", fault.message);
    assert.match(fault.message, sentence);
    assert.equal(fault.at, formatProxy(proxy.url));
    await closed(proxy);
  }
});

test("bytes that come before the request are treated as an answer", async () => {
  await using proxy = await ScriptedProxy.start({
    onConnection: (socket) => void socket.write("220 mail.corp ESMTP\r\n"),
  });
  assert.equal((await faultOf(open(proxy))).fault, "proxy_protocol");
  await closed(proxy);
});

const PORTAL =
  "shows a web page in place of the server, most likely a login (a captive portal): log in from this machine with a browser that goes through it, or ask its administrators to let this machine pass without";

test("each refusal has its fault, with the proxy's own words", async () => {
  const page = (status: string, body: string, more = ""): string =>
    `HTTP/1.1 ${status}\r\nContent-Length: ${body.length}\r\n${more}\r\n${body}`;
  const cases = [
    [
      page("403 Forbidden", "<html><head><style>x{}</style><title>Access\n Denied</title>"),
      "proxy_forbidden",
      "does not allow CONNECT to agents.example:443: ask its administrators to allow this destination (403 Forbidden: Access Denied)",
    ],
    [
      page("502 Bad Gateway", "no \x1b[31m route\r\n"),
      "proxy_unavailable",
      "cannot reach agents.example:443: check its name and port as the proxy sees them (502 Bad Gateway: no [31m route)",
    ],
    [
      page("503 Busy", "<p>come <b>later</b></p>", "Retry-After: 7\r\n"),
      "proxy_unavailable",
      "cannot reach agents.example:443: check its name and port as the proxy sees them (503 Busy: come later)",
    ],
    [
      page("504 Gateway Timeout", ""),
      "proxy_unavailable",
      "cannot reach agents.example:443: check its name and port as the proxy sees them (504 Gateway Timeout)",
    ],
    [
      page(
        "511 Network Authentication Required",
        "<html><head><title>Guest network</title><meta http-equiv=refresh content='0; url=https://login.example/'>",
        "Retry-After: 7\r\n",
      ),
      "web_page",
      `${PORTAL} (511 Network Authentication Required: Guest network)`,
    ],
    [page("429 Slow Down", ""), "proxy_unavailable", "cannot serve CONNECT to agents.example:443 now (429 Slow Down)"],
    [page("302 Found", ""), "web_page", `${PORTAL} (302 Found)`],
    [
      page(
        "307 Go",
        "<p>moved</p>",
        "Location: http://guest:1234@login.example/start;jsessionid=9?mac=00-11-22#go\r\n",
      ),
      "web_page",
      `${PORTAL} (307 Go: to "http://login.example/start")`,
    ],
    [page("302 Found", "", "Location: /login#mac=00-11-22\r\n"), "web_page", `${PORTAL} (302 Found: to "/login")`],
    [page("302 Found", "<p>moved</p>", "Location: ?mac=00-11-22\r\n"), "web_page", `${PORTAL} (302 Found: moved)`],
    [
      page("302 Found", "", `Location: //login.example/\x1b[31m${"a".repeat(1_000)}\r\n`),
      "web_page",
      `${PORTAL} (302 Found: to "//login.example/ [31m${"a".repeat(96)}...")`,
    ],
    [
      page("403 Forbidden", "rule 17", "Location: http://blocked.example/?by=17\r\n"),
      "proxy_forbidden",
      "does not allow CONNECT to agents.example:443: ask its administrators to allow this destination (403 Forbidden: rule 17)",
    ],
    [
      page("405 Method Not Allowed", "nginx"),
      "proxy_protocol",
      "does not take CONNECT to agents.example:443: check that it is an HTTP proxy (405 Method Not Allowed: nginx)",
    ],
    [
      "HTTP/1.1 403 Forbidden\r\nTransfer-Encoding: chunked\r\n\r\n4;x=y\r\nrule\r\n3\r\n 17\r\n0\r\nTrailer: t\r\n\r\n",
      "proxy_forbidden",
      "does not allow CONNECT to agents.example:443: ask its administrators to allow this destination (403 Forbidden: rule 17)",
    ],
  ] as const;
  for (const [answer, kind, sentence] of cases) {
    await using proxy = await answering(answer);
    const fault = await faultOf(open(proxy));
    assert.equal(fault.message, `the proxy ${formatProxy(proxy.url)} ${sentence}`);
    assert.equal(fault.fault, kind);
    assert.equal(fault.retryAfterMs, answer.includes("Retry-After") ? 7_000 : undefined);
    await closed(proxy);
  }
});

test("a compressed page is not shown, and an endless one is not awaited", async () => {
  const packed = gzipSync("a bomb".repeat(10_000));
  const head = `HTTP/1.1 403 No\r\nContent-Encoding: gzip\r\nContent-Length: ${packed.length}\r\n\r\n`;
  await using compressed = await answering(Buffer.concat([Buffer.from(head), packed]));
  assert.match((await faultOf(open(compressed))).message, /\(403 No\)$/);
  await using endless = await answering("HTTP/1.1 403 No\r\nContent-Length: 1000000\r\n\r\nnot for you");
  assert.match((await faultOf(open(endless))).message, /\(403 No: not for you\)$/);
  await using flood = await answering(`HTTP/1.1 403 No\r\n\r\n${"flood ".repeat(1_000_000)}`);
  assert.match((await faultOf(open(flood))).message, /\(403 No: flood flood .{150,190}\.\.\.\)$/);
  await closed(flood);
});

test("a connection that ends before an answer is the proxy's to explain", async () => {
  for (const answer of ["", "HTTP/1.1 200 Connection est"]) {
    await using proxy = await answering(answer, true);
    const fault = await faultOf(open(proxy));
    assert.equal(fault.fault, "proxy_closed", fault.message);
  }
  await using rude = await ScriptedProxy.start({ onRequest: (_request, socket) => void socket.resetAndDestroy() });
  const fault = await faultOf(open(rude));
  assert.equal(fault.fault, "proxy_closed");
  assert.equal(rude.connections, 1);
});

test("an abort says what the attempt waited for, and destroys the connection", async () => {
  for (const [scheme, step] of [
    ["http", "to answer CONNECT to agents.example:443"],
    ["https", "in the TLS handshake"],
  ] as const) {
    await using silent = await ScriptedProxy.start({});
    const url = { ...silent.url, scheme };
    const abort = new AbortController();
    const opening = faultOf(open(url, {}, abort.signal));
    await until(() => [...silent.sockets].some(({ bytesRead }) => bytesRead > 0));
    abort.abort(new Error("no more time"));
    const fault = await opening;
    assert.equal(fault.fault, "timeout");
    assert.equal(fault.message, `the proxy ${formatProxy(url)} took too long ${step}`);
    assert.equal((fault.cause as Error).message, "no more time");
    await closed(silent);
    assert.equal((await faultOf(open(url, {}, AbortSignal.abort()))).fault, "timeout");
  }
});

test("a proxy that does not exist is a fault with its address", async () => {
  const port = await freePort();
  const proxy = { scheme: "http", host: "127.0.0.1", port, credentials: undefined } as const;
  const refused = await faultOf(open(proxy));
  assert.deepEqual([refused.fault, refused.at], ["refused", `http://127.0.0.1:${port}`]);
  const nobody = await faultOf(open({ ...proxy, host: "nobody.invalid" }));
  assert.deepEqual([nobody.fault, nobody.at], ["dns", `http://nobody.invalid:${port}`]);
});

test("TLS to a server goes through plain proxies and through TLS to the proxy", async (t) => {
  const { ca, server } = await testCertificates();
  const target = tls.createServer(server, (socket) => socket.on("error", () => {}).write("welcome"));
  await once(target.listen(0, "127.0.0.1"), "listening");
  t.after(() => target.close());
  const { port } = target.address() as net.AddressInfo;
  for (const scheme of ["http", "https"]) {
    await using proxy = await ScriptedProxy.start({
      ...(scheme === "https" ? { tls: server } : {}),
      onRequest: (_request, socket) => {
        socket.write(OK);
        const onward = net.connect(port, "127.0.0.1");
        socket.removeAllListeners("data");
        socket.on("close", () => onward.destroy());
        socket.pipe(onward).pipe(socket);
      },
    });
    const socket = await open(proxy, { tls: { ca: [ca] } });
    assert.equal(socket instanceof tls.TLSSocket, scheme === "https");
    const inner = tls.connect({ socket, ...trustIn(ca), host: "127.0.0.1" });
    await once(inner, "secureConnect");
    assert.equal(await read(inner, 7), "welcome");
    inner.destroy();
    await closed(proxy);
  }
});

test("a failure of TLS to the proxy is a fault with its cure", async () => {
  const { ca, server, client } = await testCertificates();
  await using stranger = await ScriptedProxy.start({ tls: server });
  const untrusted = await faultOf(open(stranger));
  assert.equal(untrusted.fault, "proxy_tls");
  assert.match(untrusted.message, /give that CA with --proxy-ca/);
  await using nothing = await ScriptedProxy.start({
    onConnection: (socket) => void socket.write("HTTP/1.1 400 Bad\r\n\r\n"),
  });
  const spoken = await faultOf(open({ ...nothing.url, scheme: "https" }));
  assert.deepEqual([spoken.fault, /is it an http:\/\/ proxy\?/.test(spoken.message)], ["proxy_tls", true]);
  await using rude = await ScriptedProxy.start({ onConnection: (socket) => void socket.end() });
  const gone = await faultOf(open({ ...rude.url, scheme: "https" }));
  assert.match(gone.message, /^TLS to the proxy .* failed: .* \(it (closed|reset) the connection in the handshake\)$/);
  const other = await faultOf(open({ ...stranger.url, host: "localhost" }, { tls: { ca: [ca] } }));
  assert.match(other.message, /for another name/);
  assert.match(
    (await faultOf(open(stranger, { tls: { ca: ["-----BEGIN"], cert: "nonsense" } }))).message,
    /^TLS to the proxy/,
  );
  await using mutual = await ScriptedProxy.start({
    tls: { ...server, requestCert: true, rejectUnauthorized: true },
    onRequest: (_request, socket) => void socket.write(OK),
  });
  const nameless = await faultOf(open(mutual, { tls: { ca: [ca] } }));
  assert.equal(nameless.fault, "proxy_tls", nameless.message);
  assert.match(nameless.message, /wants one: see --proxy-cert/);
  (await open(mutual, { tls: { ca: [ca], ...client } })).destroy();
  await closed(stranger);
});

async function closed(proxy: ScriptedProxy): Promise<void> {
  await until(() => proxy.sockets.size === 0);
}
