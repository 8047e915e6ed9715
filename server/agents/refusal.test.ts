import assert from "node:assert/strict";
import { PassThrough } from "node:stream";
import { text } from "node:stream/consumers";
import { test } from "node:test";
import { CulvertError, OUTCOMES, type OutcomeCode } from "../../shared/outcomes.ts";
import {
  answerRaw,
  answerTo,
  callersRequest,
  claimedCertificate,
  noUpgrade,
  originFault,
  otherPath,
  parseRefusal,
  requestFault,
} from "./refusal.ts";

const AGENT = ["Host", "x", "Upgrade", "websocket", "Sec-WebSocket-Version", "13"];
const GOOD = { httpVersion: "1.1", rawHeaders: AGENT, isUpgrade: true };
const many = (lines: number) => Array.from({ length: lines }, (_, index) => [`X-${index}`, "y"]).flat();

for (const [what, request, status] of [
  ["an agent's upgrade", {}, undefined],
  ["HTTP/1.0", { httpVersion: "1.0" }, 505],
  ["HTTP/2.0", { httpVersion: "2.0" }, 505],
  ["100 header lines", { rawHeaders: [...AGENT, ...many(97)] }, undefined],
  ["101 header lines", { rawHeaders: [...AGENT, ...many(98)] }, 431],
  ["no Host", { rawHeaders: AGENT.slice(2) }, 400],
  ["two Hosts", { rawHeaders: [...AGENT, "hOST", "x"] }, 400],
  ["two Authorization lines", { rawHeaders: [...AGENT, "Authorization", "a", "authorization", "a"] }, 400],
  ["Content-Length: 0", { rawHeaders: [...AGENT, "Content-Length", "0"] }, 400],
  ["Transfer-Encoding", { rawHeaders: [...AGENT, "Transfer-Encoding", "chunked"] }, 400],
  ["Expect", { rawHeaders: [...AGENT, "Expect", "100-continue"] }, 400],
  ["version 8 of the WebSocket", { rawHeaders: [...AGENT.slice(0, 5), "8"] }, 426],
  ["two versions", { rawHeaders: [...AGENT, "Sec-WebSocket-Version", "13"] }, 426],
  ["a POST that is no upgrade", { rawHeaders: ["Host", "x", "Content-Length", "5"], isUpgrade: false }, undefined],
] as const) {
  test(`${what}: ${status ?? "nothing is wrong"}`, () => {
    const { isUpgrade, ...header } = { ...GOOD, ...request };
    assert.equal(requestFault(header, isUpgrade)?.status, status);
  });
}

test("an Origin is refused unless it is allowed, and what has none is no browser's", () => {
  const origin = ["Origin", "https://a.example"];
  assert.equal(originFault(AGENT, []), undefined);
  assert.equal(originFault(origin, [])?.status, 403);
  assert.equal(originFault(origin, ["https://a.example"]), undefined);
  assert.equal(originFault([...origin, "origin", "null"], ["https://a.example"])?.status, 403);
});

const CLAIMS = [
  "x-forwarded-client-cert",
  "x-forwarded-tls-client-cert-info",
  "x-amzn-mtls-clientcert-leaf",
  "x-ssl-client-cert",
  "x-ssl-client-dn",
  "ssl-client-subject-dn",
  "x-client-cert-present",
  "client-cert",
  "client-cert-chain",
];
const OTHERS = [
  "host",
  "authorization",
  "x-forwarded-for",
  "x-forwarded-proto",
  "sec-websocket-key",
  "client-certainly",
];

test("the headers by which balancers pass a client certificate on are known, and no others", () => {
  for (const name of CLAIMS) assert.equal(claimedCertificate({ host: "x", [name]: "CN=agent" }), name);
  for (const name of OTHERS) assert.equal(claimedCertificate({ [name]: "CN=agent" }), undefined, name);
});

test("an agent gets a status for every outcome, at the level of the table; only draining says when to come back", () => {
  const statuses: Readonly<Record<string, number>> = {
    unauthenticated: 401,
    forbidden: 403,
    limited: 429,
    draining: 503,
  };
  for (const code of Object.keys(OUTCOMES) as OutcomeCode[]) {
    const { status, headers, sentence, level } = answerTo(new CulvertError(code, "a sentence\nof two lines"));
    assert.ok(status >= 400 && status < 600, code);
    assert.equal(status, statuses[code] ?? status);
    assert.equal(level, OUTCOMES[code].level);
    const [comeBack, fields] = code === "draining" ? [": come back in 1 s", ["retry-after"]] : ["", []];
    assert.equal(sentence, `a sentence of two lines${comeBack}`);
    assert.deepEqual(Object.keys(headers), fields);
  }
});

/** The header fields of an answer, and its body. */
async function answered(answer: ReturnType<typeof answerTo>) {
  const socket = new PassThrough();
  const written = text(socket);
  answerRaw(socket, answer);
  const [head = "", body] = (await written).split("\r\n\r\n");
  const [line = "", ...fields] = head.split("\r\n");
  return { line, fields, body };
}

test("every refusal bears the server's mark with its sentence, and says that the connection ends", async () => {
  for (const code of Object.keys(OUTCOMES) as OutcomeCode[]) {
    const answer = answerTo(new CulvertError(code, "x"));
    const { fields } = await answered(answer);
    const mark = `proxy-status: culvert; error=${OUTCOMES[code].proxyStatus}; details="${answer.sentence}"`;
    for (const field of [mark, "Connection: close"]) assert.ok(fields.includes(field), fields.join());
  }
});

test("a peer that speaks something else, or asks for something else, gets a whole answer with the server's mark", async () => {
  const tooLarge = parseRefusal(Object.assign(new Error(), { code: "HPE_HEADER_OVERFLOW" }), 1_024);
  const noHttp = parseRefusal(Object.assign(new Error(), { code: "HPE_INVALID_METHOD" }), 1_024);
  for (const refusal of [callersRequest(), noUpgrade(), otherPath("/tunnel"), tooLarge, noHttp]) {
    assert.ok(refusal !== undefined);
    const answer = answerTo(refusal);
    const { line, fields, body } = await answered(answer);
    assert.ok(line.startsWith(`HTTP/1.1 ${answer.status} `), line);
    const mark = `proxy-status: culvert; error=http_request_error; details="${answer.sentence}"`;
    for (const field of [mark, "Connection: close"]) assert.ok(fields.includes(field), fields.join());
    assert.equal(body, `${answer.sentence}\n`);
  }
});

const TOKENS = { verifier: { verify: () => Promise.reject(new Error("is not asked")), close: () => {} } };
const CERTIFICATES = { verifier: undefined };
const BASIC = `Basic ${Buffer.from("blue:abc").toString("base64")}`;

const TABLE: ReadonlyArray<readonly [rules: typeof TOKENS | typeof CERTIFICATES, sent: string | undefined, string]> = [
  [CERTIFICATES, undefined, "ClientCertificate"],
  [CERTIFICATES, "Bearer abc", "ClientCertificate"],
  [TOKENS, undefined, 'Bearer realm="culvert"'],
  [TOKENS, "Negotiate abc", 'Bearer realm="culvert"'],
  [TOKENS, "Bearer abc", 'Bearer realm="culvert", error="invalid_token"'],
  [TOKENS, BASIC, 'Bearer realm="culvert", error="invalid_token"'],
];

test("a 401 asks for what the virtual host accepts, and names a token that was sent as invalid", () => {
  const refusal = new CulvertError("unauthenticated", "x");
  for (const [rules, sent, asked] of TABLE) {
    assert.equal(answerTo(refusal, rules, sent).headers["www-authenticate"], asked, sent);
  }
});
