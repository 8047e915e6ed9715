import assert from "node:assert/strict";
import { once } from "node:events";
import { connect, createServer, type Socket } from "node:net";
import { duplexPair } from "node:stream";
import { test } from "node:test";
import { CulvertError, isOutcomeCode, OUTCOMES, type OutcomeCode } from "../../shared/outcomes.ts";
import { refuseConnect } from "./reply.ts";

/** Everything that `answer` writes, up to the end. */
async function written(answer: (socket: ReturnType<typeof duplexPair>[0]) => void): Promise<string> {
  const [near, far] = duplexPair();
  const chunks: Buffer[] = [];
  far.on("data", (chunk: Buffer) => chunks.push(chunk));
  answer(near);
  await once(far, "end");
  far.destroy();
  near.destroy();
  return Buffer.concat(chunks).toString("latin1");
}

/** Status and RFC 9209 error type that each outcome has on the wire: written out, not computed from the table. */
const WIRE: Record<OutcomeCode, readonly [status: number, proxyStatus: string] | undefined> = {
  bad_target: [400, "http_request_error"],
  unauthenticated: [407, "http_request_denied"],
  forbidden: [403, "http_request_denied"],
  unknown_cluster: [404, "destination_not_found"],
  limited: [429, "connection_limit_reached"],
  no_agent: [503, "destination_unavailable"],
  draining: [503, "destination_unavailable"],
  overloaded: [503, "connection_limit_reached"],
  dial_refused: [502, "connection_refused"],
  dial_unreachable: [502, "destination_ip_unroutable"],
  dial_name: [502, "dns_error"],
  dial_reset: [502, "connection_terminated"],
  dial_timeout: [504, "connection_timeout"],
  agent_timeout: [504, "connection_timeout"],
  agent_lost: [502, "connection_terminated"],
  agent_exhausted: [503, "connection_limit_reached"],
  unaudited: [503, "proxy_internal_error"],
  peer_lost: [502, "connection_terminated"],
  server_lost: [502, "connection_terminated"],
  stalled: undefined,
  caller_gone: undefined,
  internal: [500, "proxy_internal_error"],
};

for (const code of Object.keys(OUTCOMES).filter(isOutcomeCode)) {
  const wire = WIRE[code];
  if (wire === undefined) {
    test(`${code} is answered by silence`, async () => {
      const [near, far] = duplexPair();
      far.on("data", () => assert.fail("bytes"));
      refuseConnect(near, new CulvertError(code, "nobody hears"), []);
      assert.equal(near.destroyed, true);
    });
    continue;
  }
  test(`${code} is ${wire[0]}, with the sentence as reason phrase, in Proxy-Status and in the body`, async () => {
    const sentence = `the "${code}" sentence`;
    const text = await written((socket) =>
      refuseConnect(socket, new CulvertError(code, sentence), ["Bearer", "Basic"]),
    );
    const [head = "", body] = text.split("\r\n\r\n");
    const lines = head.split("\r\n");
    assert.equal(lines[0], `HTTP/1.1 ${wire[0]} ${sentence}`);
    assert.ok(lines.includes(`Proxy-Status: culvert; error=${wire[1]}; details="the '${code}' sentence"`), head);
    assert.ok(lines.includes("Connection: close"));
    assert.ok(lines.includes(`Content-Length: ${body?.length}`));
    assert.deepEqual(
      lines.filter((line) => line.startsWith("Proxy-Authenticate:")),
      wire[0] === 407 ? ["Proxy-Authenticate: Bearer", "Proxy-Authenticate: Basic"] : [],
    );
    assert.equal(body, `${sentence}\n`);
  });
}

test("Retry-After is in whole seconds, and never too early", async () => {
  const limited = new CulvertError("limited", "too many", { retryAfterMs: 1_001 });
  assert.match(await written((socket) => refuseConnect(socket, limited, [])), /\r\nRetry-After: 2\r\n/);
});

test("what an agent says cannot add a header, a line or an escape sequence", async () => {
  const hostile = `x\r\nSet-Cookie: a=b\r\n\r\n\u001b[2J\u0000 "quoted\\" ${"long ".repeat(200)}`;
  const text = await written((socket) => refuseConnect(socket, new CulvertError("dial_refused", hostile), []));
  assert.equal(text.split("\r\n\r\n").length, 2);
  const head = text.slice(0, text.indexOf("\r\n\r\n"));
  assert.match(head, /^HTTP\/1\.1 502 [\x20-\x7e]{1,200}\r\n/);
  assert.doesNotMatch(head, /^Set-Cookie/m);
  assert.match(head, /details="[^"\\]*"\r\n/);
});

test("a caller that goes on sending still reads why it was refused", async () => {
  const server = createServer({ allowHalfOpen: true }, (socket) => {
    socket.on("error", () => {});
    socket.once("data", () => refuseConnect(socket, new CulvertError("no_agent", "no agent"), []));
  }).listen(0);
  await once(server, "listening");
  const caller: Socket = connect((server.address() as { port: number }).port);
  const chunks: Buffer[] = [];
  caller.on("data", (chunk: Buffer) => chunks.push(chunk));
  caller.on("error", () => {});
  caller.write(Buffer.alloc(4 * 1024 * 1024));
  await once(caller, "end");
  assert.match(Buffer.concat(chunks).toString(), /^HTTP\/1\.1 503 no agent\r\n/);
  caller.destroy();
  server.close();
});
