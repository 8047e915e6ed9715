import assert from "node:assert/strict";
import { test } from "node:test";
import { originFault, requestFault } from "./strict-request.ts";

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
