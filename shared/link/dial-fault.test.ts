import assert from "node:assert/strict";
import { test } from "node:test";
import { DialFault } from "../faults/faults.ts";
import { CONNECTING, type DialStep, dialFault, SECURING, timeoutFault, UPGRADING } from "./dial-fault.ts";

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
    /: TCP stands, .* or is the port in --server another one\? Else the server may hang: look at its log$/,
  );
  const behind = timeoutFault({ step: SECURING, host: "server", proxy: PROXY }, late);
  assert.ok(behind instanceof DialFault);
  assert.deepEqual(behind.facts, { by: PROXY.at, proxyFrom: PROXY.from, handshake: "silent" });
  assert.match(
    behind.message,
    /handshake: the proxy http:\/\/proxy\.corp:3128 has opened the connection, .* or the server may hang$/,
  );
});
