import assert from "node:assert/strict";
import { test } from "node:test";
import { claimedCertificate, originFault, requestFault } from "./request-checks.ts";

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
    assert.equal(requestFault({ ...GOOD, ...request })?.status, status);
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
