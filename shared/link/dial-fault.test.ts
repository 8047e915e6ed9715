import assert from "node:assert/strict";
import { test } from "node:test";
import { CONNECTING, type DialStep, dialFault, NoHandshake, SECURING, tooLate, UPGRADING } from "./dial-fault.ts";

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
      /^what answers there closed the connection in the TLS handshake, .*: does the server run\? .* does a firewall read/,
    ],
    [RESET, SECURING, /^what answers there reset the connection in the TLS handshake, /],
    [PIPE, SECURING, /^what answers there closed the connection in the TLS handshake, /],
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
    tooLate({ step: SECURING, proxy: undefined }, late).message,
    /: TCP stands, .* or is the port in --server another one\? Else the server may hang: look at its log$/,
  );
  const behind = tooLate({ step: SECURING, proxy: PROXY }, late);
  assert.ok(behind instanceof NoHandshake && behind.proxy === PROXY);
  assert.match(
    behind.message,
    /handshake: the proxy http:\/\/proxy\.corp:3128 has opened the connection, .* or the server may hang$/,
  );
});
