import assert from "node:assert/strict";
import { once } from "node:events";
import { connect, createServer, type Socket } from "node:net";
import { Duplex, duplexPair } from "node:stream";
import { test } from "node:test";
import { setImmediate as turn } from "node:timers/promises";
import { UNBOUNDED } from "../../shared/limits/memory-account.ts";
import { MemoryPool } from "../../shared/limits/memory-pool.ts";
import { RECLAIM } from "../../shared/limits/reclaim.ts";
import { CulvertError, isOutcomeCode, OUTCOMES, type OutcomeCode } from "../../shared/outcomes.ts";
import { PendingCaller, refuseConnect } from "./reply.ts";

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
  peer_lost: [502, "connection_terminated"],
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

// ── a caller until its answer ────────────────────────────────────────────────────────────────────────────────────────

/** What it is given to write is never done. */
class Unwritable extends Duplex {
  readonly given: string[] = [];

  override _read(): void {}

  override _write(chunk: Buffer): void {
    this.given.push(chunk.toString("latin1"));
  }
}

test("without a gap nothing waits for the 200 to be done: of a caller that is gone it may never be", async () => {
  const socket = new Unwritable();
  const pending = new PendingCaller(socket, UNBOUNDED);
  await pending.establish(new Unwritable(), 0);
  assert.deepEqual(socket.given, ["HTTP/1.1 200 Connection Established\r\n\r\n"]);
  socket.destroy();
});

/** A caller that has sent 3,000 bytes behind its CONNECT. */
function eager(memory: ConstructorParameters<typeof PendingCaller>[1]) {
  const socket = new Unwritable();
  const pending = new PendingCaller(socket, memory);
  socket.push(Buffer.alloc(1_000));
  socket.push(Buffer.alloc(2_000));
  return { socket, pending };
}

test("what a caller sends before its answer is counted until the target has it, or it is refused", async () => {
  const pool = new MemoryPool(2 ** 20);
  const [one, other] = [eager(pool.share("red")), eager(pool.share("red"))];
  await turn();
  assert.equal(pool.held, 6_000);
  assert.equal(await one.pending.establish(new Unwritable(), 0), 3_000);
  assert.equal(pool.held, 3_000);
  other.pending.release();
  assert.equal(pool.held, 0);
  for (const { socket } of [one, other]) socket.destroy();
});

test("what came before the caller was admitted moves to the account of its cluster, and what comes later goes there", async () => {
  const pool = new MemoryPool(2 ** 20);
  const [unauthenticated, red] = [pool.share(""), pool.share("red")];
  const { socket, pending } = eager(unauthenticated);
  await turn();
  const held = () => [unauthenticated.held, red.held];
  assert.deepEqual(held(), [3_000, 0]);
  pending.chargeTo(red);
  assert.deepEqual(held(), [0, 3_000]);
  socket.push(Buffer.alloc(500));
  await turn();
  assert.deepEqual(held(), [0, 3_500]);
  assert.equal(
    red.reclaim(() => false, performance.now() + 1_000, RECLAIM.stalled),
    1,
    "it is its cluster's to end",
  );
  assert.deepEqual(held(), [0, 0]);
  pending.release();
  socket.destroy();
});

test("early bytes that came one by one are held, and reach the target, in few pieces", async () => {
  const pool = new MemoryPool(2 ** 20);
  const socket = new Unwritable();
  const pending = new PendingCaller(socket, pool.share("red"));
  for (let piece = 0; piece < 2_000; piece++) {
    socket.push(Buffer.alloc(20)); // a TLS record of its own
    await turn();
  }
  assert.equal(pool.held, 40_000);
  const target = new Unwritable();
  const written: number[] = [];
  target.write = ((chunk: Buffer) => written.push(chunk.length) > 0) as Duplex["write"];
  assert.equal(await pending.establish(target, 0), 40_000);
  assert.ok(written.length < 20, `${written.length} pieces`);
  socket.destroy();
});

test("of what a caller sends before its answer 64 KiB are read, and the rest waits in its socket", async () => {
  const pool = new MemoryPool(2 ** 30);
  const socket = new Unwritable();
  const pending = new PendingCaller(socket, pool.share("red"));
  for (let piece = 0; piece < 20; piece++) {
    socket.push(Buffer.alloc(16 * 1024));
    await turn();
  }
  assert.deepEqual([pool.held, socket.readableLength], [4 * 16 * 1024, 16 * 16 * 1024]);
  pending.release();
  socket.destroy();
});

test("what a caller says behind the 200 ends the gap, unless it has spoken before it and may not have read it", async (t) => {
  t.mock.timers.enable({ apis: ["setTimeout"] });
  for (const early of ["", "early"]) {
    const [near, far] = duplexPair();
    const pending = new PendingCaller(near, UNBOUNDED);
    far.resume().write(early);
    await turn();
    let isOver = false;
    const gap = pending.establish(new Unwritable(), 1_000).then(() => {
      isOver = true;
    });
    await turn();
    far.write("more");
    await turn();
    assert.equal(isOver, early === "");
    t.mock.timers.tick(1_000);
    await gap;
    near.destroy();
  }
});

test("where a little memory is missing few of those that wait are refused, also while their token is verified", async () => {
  const pool = new MemoryPool(29_000);
  const share = pool.share("red");
  const all = Array.from({ length: 10 }, () => eager(share));
  const deadline = performance.now() + 5_000;
  while (pool.ended === 0 && performance.now() < deadline) await turn();
  assert.deepEqual([pool.ended, pool.held], [2, 8 * 3_000], "90 % of the limit may be held");
  for (const { socket, pending } of all) {
    pending.release();
    socket.destroy();
  }
});

test("where memory is short a CONNECT that waits with such bytes is refused as overloaded", async () => {
  const pool = new MemoryPool(2_000);
  const { socket, pending } = eager(pool.share("red"));
  const deadline = performance.now() + 5_000;
  while (pending.cancellation.reason === undefined && performance.now() < deadline) await turn();
  assert.equal(pending.cancellation.reason?.code, "overloaded");
  pending.release();
  assert.equal(pool.held, 0);
  socket.destroy();
});
