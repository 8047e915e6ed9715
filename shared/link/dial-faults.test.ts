import assert from "node:assert/strict";
import { test } from "node:test";
import { DialFault } from "../faults/faults.ts";
import { LinkRefused } from "../wire/handshake.ts";
import {
  CONNECTING,
  type DialStep,
  damagedAnswer,
  dialFault,
  explainAnswer,
  GREETING,
  SECURING,
  timeoutFault,
  UPGRADING,
} from "./dial-faults.ts";

/** The server's mark on its refusals. */
const OURS = { "proxy-status": "culvert; error=http_request_denied", "content-type": "text/plain" };
const HTML = { "content-type": "text/html; charset=utf-8" };

/** The class of an answer: the word for a middlebox, or the status of a refusal. */
function classify(statusCode: number, statusMessage: string, headers: Record<string, string>, body = "") {
  const verdict = explainAnswer({ statusCode, statusMessage, headers }, body, []);
  if (verdict instanceof DialFault) return { box: verdict.fault, sentence: verdict.message };
  return { refused: verdict.status, sentence: verdict.reason, retryAfterMs: verdict.retryAfterMs };
}

test("a page, a redirection or a success in place of the upgrade is somebody in between, not the server", () => {
  const portal = classify(200, "OK", { ...HTML, server: "nginx" }, "<html><title>Guest login</title>");
  assert.equal(portal.box, "web_page");
  assert.match(
    portal.sentence,
    /in between answered .*\(200 OK, page "Guest login", server "nginx"\): .*WebSocket upgrades/,
  );
  const blocked = classify(
    403,
    "Forbidden",
    { ...HTML, via: "1.1 gw (squid/5.7)" },
    "<!DOCTYPE html><TITLE>ERROR</TITLE>",
  );
  assert.equal(blocked.box, "web_page");
  assert.match(blocked.sentence, /via "1\.1 gw \(squid\/5\.7\)"/);
  const moved = classify(302, "Found", { location: "https://me:pw@portal.corp/login\u0007?session=1" });
  assert.equal(moved.box, "redirected");
  assert.match(moved.sentence, /to "https:\/\/portal\.corp\/login"/);
  assert.equal(classify(204, "No Content", {}).box, "web_page");
});

/** Fields that balancers add to every answer that they pass on, and words that they put behind our mark. */
const ON_THE_WAY: readonly Readonly<Record<string, string>>[] = [
  {},
  { server: "nginx", via: "1.1 corp" },
  { server: "envoy", "x-envoy-upstream-service-time": "1" },
  { server: "nginx", "proxy-status": `${OURS["proxy-status"]}, cdn; received-status=503` },
];

test("what bears the server's mark is its refusal, in its words, whoever has passed it on", () => {
  for (const passedOn of ON_THE_WAY) {
    for (const status of [401, 403, 404, 405, 421, 429, 431, 500, 503]) {
      const headers = { ...OURS, "retry-after": "7", ...passedOn };
      const refusal = classify(status, "Some Reason", headers, "this server is shutting down: come back in 7 s\n");
      assert.deepEqual(refusal, {
        refused: status,
        sentence: "this server is shutting down: come back in 7 s",
        retryAfterMs: 7_000,
      });
    }
  }
});

test("a refusal asks for another attempt after seconds or at a date, and a word that is neither asks for nothing", () => {
  const retryAfterMs = (value: string) => classify(503, "Busy", { ...OURS, "retry-after": value }).retryAfterMs;
  assert.deepEqual([retryAfterMs("7"), retryAfterMs("soon")], [7_000, undefined]);
  const inAnHour = retryAfterMs(new Date(Date.now() + 3_600_000).toUTCString()) ?? 0;
  assert.ok(inAnHour > 3_590_000 && inAnHour <= 3_600_000, `${inAnHour}`);
});

test("what does not is somebody in between, in whatever words", () => {
  for (const status of [502, 503, 504]) {
    for (const headers of [{}, HTML, { server: "envoy" }, { "proxy-status": "cdn; error=destination_unavailable" }]) {
      assert.equal(classify(status, "Bad", headers, "no healthy upstream").box, "gateway");
    }
  }
  const denied = classify(403, "Forbidden", { "content-type": "text/plain", server: "envoy" }, "RBAC: access denied");
  assert.equal(denied.box, "web_page");
  assert.match(
    denied.sentence,
    /^something in between answered .*\(403 Forbidden, "RBAC: access denied", server "envoy"\)/,
  );
  const lost = classify(404, "Not Found", { "content-type": "text/plain" }, "default backend - 404");
  assert.equal(lost.box, "web_page");
  assert.match(lost.sentence, /\(404 Not Found, "default backend - 404"\): are host, port and path in --server right/);
  assert.match(classify(401, "Unauthorized", {}).sentence, /^something in between wants a login \(401 Unauthorized\)/);
  for (const status of [405, 413, 418, 429, 500, 501, 521])
    assert.equal(classify(status, "Bad", {}, "no").box, "web_page");
});

test("the server's port for callers says whose port it is, whoever asks there", () => {
  const withoutCertificate = classify(
    407,
    "no client certificate was sent",
    { ...OURS, "proxy-authenticate": "Culvert" },
    "no\n",
  );
  const caller = classify(405, "only CONNECT is served here", { ...OURS, allow: "CONNECT" }, "no\n");
  const sentence =
    "this is its port for callers (CONNECT), not the one for agents; correct the port in --server: agents come to the server's --agent-port";
  assert.deepEqual(withoutCertificate, { refused: 407, sentence, retryAfterMs: undefined });
  assert.deepEqual(caller, { refused: 405, sentence, retryAfterMs: undefined });
  // Some proxy on the way, which may take CONNECT alone as well, and a server that takes another method.
  assert.equal(classify(407, "Proxy Authentication Required", { "proxy-authenticate": "Basic" }).box, "web_page");
  for (const more of [{}, { "proxy-status": "gw; error=http_request_error" }, { "content-type": "text/plain" }]) {
    assert.equal(classify(405, "Method Not Allowed", { allow: "CONNECT", ...more }, "no\n").box, "web_page");
  }
  assert.equal(classify(405, "Method Not Allowed", { allow: "POST" }).box, "web_page");
});

test("somebody who is no culvert may stand where --server says: host and port are asked for first", () => {
  for (const status of [401, 403, 405, 407, 418]) {
    assert.match(
      classify(status, "Bad", {}).sentence,
      /: are host and port in --server those of a culvert server\? If so, it must/,
    );
  }
});

test("a token that an answer revealsSecret, wherever in it, is in no message", () => {
  const token = "eyJhbGciOiJFUzI1NiJ9.eyJzdWIiOiJhZ2VudCJ9.c2lnbmF0dXJlLW9mLWl0";
  const echo = `{"headers": {"authorization": "Bearer ${token}", "host": "x"}}`;
  const answers: [status: number, message: string, headers: Record<string, string>, body: string][] = [
    ...[200, 400, 401, 403, 404, 426, 500, 502].map((status): (typeof answers)[number] => [status, "OK", {}, echo]),
    ...[401, 403, 503].map((status): (typeof answers)[number] => [status, "OK", OURS, echo]),
    [200, "OK", HTML, `<html><title>Bearer ${token}</title></html>`],
    [200, "OK", {}, `the payload is ${token.split(".")[1]}`],
    [302, "Found", { location: `https://portal.corp/?was=${encodeURIComponent(`Bearer ${token}`)}` }, ""],
    [403, `No ${token}`, {}, ""],
    [403, `No ${token}`, OURS, ""],
    [403, "No", { server: token, via: `1.1 ${token}` }, ""],
    [101, "Switching Protocols", { upgrade: token, connection: token }, ""],
  ];
  for (const [statusCode, statusMessage, headers, body] of answers) {
    const verdict = explainAnswer({ statusCode, statusMessage, headers }, body, [token]);
    const said = JSON.stringify([statusCode, verdict.message, verdict]);
    for (const part of token.split(".")) assert.ok(!said.includes(part.slice(0, 8)), said);
    assert.match(verdict.message, /not shown: it repeats our token/);
  }
});

test("426 means that the upgrade which was sent did not arrive", () => {
  const { box, sentence } = classify(426, "Upgrade Required", { "content-type": "text/plain" }, "upgrade to websocket");
  assert.equal(box, "upgrade_stripped");
  assert.match(
    sentence,
    /^the upgrade did not reach the server \(426 Upgrade Required, "upgrade to websocket"\): something in between takes/,
  );
});

test("the server's own words are kept, and nothing compressed or unprintable is shown", () => {
  const refused = explainAnswer(
    { statusCode: 401, statusMessage: "Unauthorized", headers: OURS },
    "the certificate\u001b[31m",
    [],
  );
  assert.ok(refused instanceof LinkRefused);
  assert.ok(!refused.reason.includes("\u001b"));
  const packed = { ...OURS, "content-encoding": "gzip" };
  assert.equal(classify(403, "Forbidden", packed, "\u001f\u008b").sentence, "Forbidden");
  assert.equal(classify(403, "Forbidden", { ...OURS, ...HTML }, "<html>a balancer's page").sentence, "Forbidden");
  assert.doesNotMatch(classify(403, "F", { ...HTML, "content-encoding": "gzip" }, "<title>x</title>").sentence, /page/);
});

test("a 101 that has lost a header, or got one, is somebody in between, and other errors of ws are not", () => {
  const half = classify(101, "Switching Protocols", { connection: "keep-alive", upgrade: "websocket" });
  assert.equal(half.box, "upgrade_stripped");
  assert.match(
    half.sentence,
    /came without its headers \(101, Upgrade: websocket, Connection: keep-alive\): something/,
  );
  for (const words of [
    "Invalid Upgrade header",
    "Invalid Sec-WebSocket-Accept header",
    "Server sent an invalid subprotocol",
    "Invalid WebSocket frame: RSV1 must be clear",
    "Server sent a Sec-WebSocket-Extensions header but no extension was requested",
  ]) {
    const damaged = damagedAnswer(new Error(words));
    assert.equal(damaged.fault, "upgrade_stripped", words);
    assert.ok(damaged.message.includes(`(${words}): something in between has changed it`));
  }
});

test("400 is the server's word for half an upgrade: something in between has taken the rest", () => {
  const { box, sentence } = classify(400, "Bad Request", { "content-type": "text/plain" }, "Missing header");
  assert.equal(box, "upgrade_stripped");
  assert.match(sentence, /did not reach the server whole \(400 Bad Request, "Missing header"\)/);
});

test("who is refused for a certificate learns of a clock that differs, by the Date of the answer", () => {
  const now = Date.parse("2026-06-15T12:00:00Z");
  const refusedAt = (date: string | undefined): string => {
    const headers = { ...OURS, ...(date !== undefined && { date: new Date(date).toUTCString() }) };
    const answer = { statusCode: 401, statusMessage: "", headers };
    const refusal = explainAnswer(answer, "the certificate has expired\n", [], now);
    assert.equal(refusal instanceof LinkRefused && refusal.reason, "the certificate has expired");
    return refusal.message.replace(/^.*\(401\): /, "");
  };
  assert.equal(refusedAt(undefined), "the certificate has expired");
  assert.equal(refusedAt("2026-06-15T12:01:00Z"), "the certificate has expired");
  const ahead = "the certificate has expired; this machine's clock is 1 day 2 h ahead of the server's";
  assert.equal(refusedAt("2026-06-14T10:00:00Z"), ahead);
  assert.match(refusedAt("2026-06-15T15:00:00Z"), /clock is 3 h behind the server's$/);
});

function faultOf(error: Error): string | undefined {
  return error instanceof DialFault ? error.fault : undefined;
}

const PROXY = { at: "http://proxy.corp:3128", from: "--proxy" };
const CLOSED = Object.assign(
  new Error("Client network socket disconnected before secure TLS connection was established"),
  { code: "ECONNRESET" },
);
const RESET = Object.assign(new Error("read ECONNRESET"), { code: "ECONNRESET", syscall: "read" });
const PIPE = Object.assign(new Error("write EPIPE"), { code: "EPIPE", syscall: "write" });

test("who breaks a connection off is told in words, with the step and whom to ask", () => {
  const cases: [error: Error, step: DialStep, sentence: RegExp][] = [
    [
      CLOSED,
      SECURING,
      /^what answers there closed the connection in the TLS handshake; .*: does the server run\? .* does a firewall read/,
    ],
    [RESET, SECURING, /^what answers there reset the connection in the TLS handshake; /],
    [PIPE, SECURING, /^what answers there closed the connection in the TLS handshake; /],
    [RESET, UPGRADING, /^what answers there reset the connection in place of an answer to the upgrade: .*WebSockets/],
    [PIPE, UPGRADING, /^what answers there closed the connection in place of an answer to the upgrade: /],
  ];
  for (const [error, step, sentence] of cases) {
    const { message, cause } = dialFault(error, { step, host: "server", proxy: undefined });
    assert.match(message, sentence);
    assert.equal(cause, error);
    assert.doesNotMatch(message, /EPIPE|ECONNRESET|socket/);
    assert.match(
      dialFault(error, { step, host: "server", proxy: PROXY }).message,
      /^the proxy http:\/\/proxy\.corp:3128, or what answers behind it, (closed|reset) the connection in /,
    );
  }
});

test("a server of gRPC is known by its alert, by its first frame, and suspected by how it leaves", () => {
  const alert = Object.assign(new Error("alert"), { code: "ERR_SSL_TLSV1_ALERT_NO_APPLICATION_PROTOCOL" });
  const parseError = (packet: string) =>
    Object.assign(new Error("Parse Error"), { code: "HPE_INVALID_CONSTANT", rawPacket: Buffer.from(packet, "hex") });
  const settings = parseError("000006040000000000000500004000");
  const at = { host: "server", proxy: undefined };
  for (const [error, standing] of [
    [alert, { ...at, step: SECURING }],
    [settings, { ...at, step: UPGRADING, noProtocol: true }],
  ] as const) {
    const fault = dialFault(error, standing);
    assert.equal(faultOf(fault), "grpc_server");
    assert.match(fault.message, /^what answers there speaks HTTP\/2 alone, as konnectivity-server \(gRPC\) does/);
  }
  const left = dialFault(PIPE, { ...at, step: UPGRADING, noProtocol: true });
  assert.equal(faultOf(left), "grpc_server");
  assert.match(left.message, /^what answers there closed the connection once TLS stood, as konnectivity-server/);
  for (const [error, noProtocol] of [
    [PIPE, false], // it has chosen HTTP/1.1
    [parseError("485454502f312e31203230300d0a0d0a"), true],
    [parseError("0000"), true],
  ] as const) {
    assert.notEqual(faultOf(dialFault(error, { ...at, step: UPGRADING, noProtocol })), "grpc_server");
  }
});

test("a reset while the welcome is awaited is said in words, and keeps its code", () => {
  const fault = dialFault(RESET, { step: GREETING, host: "server", proxy: undefined });
  assert.equal(fault.message, "what answers there reset the connection (waiting for welcome)");
  assert.equal((fault as NodeJS.ErrnoException).code, "ECONNRESET");
});

test("what is no such end keeps the network's words and its code", () => {
  const refused = Object.assign(new Error("connect ECONNREFUSED ::1:443"), {
    code: "ECONNREFUSED",
    syscall: "connect",
  });
  const fault = dialFault(refused, { step: CONNECTING, host: "server", proxy: undefined });
  assert.equal(fault.message, "connect ECONNREFUSED ::1:443 (connecting)");
  assert.equal((fault as NodeJS.ErrnoException).code, "ECONNREFUSED");
});

test("a TLS handshake that is not answered is asked about whoever may hold it up, a proxy among them", () => {
  const late = "no tunnel within 10 s: timed out in the TLS handshake";
  assert.match(
    timeoutFault({ step: SECURING, host: "server", proxy: undefined }, late).message,
    /: TCP is connected, .* or is the port in --server another one\? Else the server may hang: look at its log$/,
  );
  const behind = timeoutFault({ step: SECURING, host: "server", proxy: PROXY }, late);
  assert.ok(behind instanceof DialFault);
  assert.deepEqual(behind.facts, { by: PROXY.at, proxyFrom: PROXY.from });
  assert.match(
    behind.message,
    /handshake: the proxy http:\/\/proxy\.corp:3128 has opened the connection, .* or the server may hang$/,
  );
});
