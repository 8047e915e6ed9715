import assert from "node:assert/strict";
import { Duplex, duplexPair } from "node:stream";
import { text } from "node:stream/consumers";
import { test } from "node:test";
import { setImmediate as turn } from "node:timers/promises";
import { until } from "../../shared/basics/testing/wait.ts";
import { UNBOUNDED } from "../../shared/limits/memory-account.ts";
import { MemoryPool } from "../../shared/limits/memory-pool.ts";
import { RECLAIM } from "../../shared/limits/reclaim.ts";
import type { IncomingConnection } from "../../shared/listen/incoming-connection.ts";
import type { CulvertError } from "../../shared/outcomes.ts";
import { createLogger } from "../../shared/runtime/logger.ts";
import { contextWithCluster } from "../tunnels/testing/context.ts";
import { type FakeAgentOptions, fakeAgent } from "../tunnels/testing/fake-agent.ts";
import type { CallerHost } from "./authenticate.ts";
import { type CallerEnd, PendingCaller } from "./caller-end.ts";
import { serveConnect } from "./connect.ts";
import type { Line } from "./testing/caller.ts";

const ESTABLISHED = "go on. ";

/** A caller in memory, whose protocol is the word above. */
function endOf(stream: Duplex, gapMs = 0): CallerEnd & { readonly refusals: CulvertError[]; resets: number } {
  return {
    stream,
    connection: { source: { address: "10.0.0.9", port: 4_444 }, socket: stream } as IncomingConnection,
    idleBytes: 100,
    gapMs,
    refusals: [],
    resets: 0,
    establish: (onWritten) => void stream.write(ESTABLISHED, onWritten),
    refuse(refusal) {
      this.refusals.push(refusal);
      stream.destroy();
    },
    reset() {
      this.resets++;
      stream.destroy();
    },
  };
}

// ── a CONNECT whose caller speaks no HTTP ────────────────────────────────────────────────────────────────────────────

/** One CONNECT of a caller in memory, for a cluster with one agent. */
function connectOf(agentOptions: FakeAgentOptions) {
  const lines: Line[] = [];
  const destination = { write: (line: string) => void lines.push(JSON.parse(line)) };
  const log = createLogger({ level: "info", format: "json", name: "test", destination });
  const agent = fakeAgent(agentOptions);
  const { context, cluster } = contextWithCluster({ agentWaitMs: 0 }, { log });
  cluster.places.reserve(agent.tunnel.agent).join(agent.tunnel);
  const [near, far] = duplexPair({ allowHalfOpen: true });
  far.on("error", () => {});
  const end = endOf(near);
  const serve = (authority: string, verify = async () => ({ name: "somebody" })): Promise<void> =>
    serveConnect(end, authority, { host: { kind: "tls", tunnels: cluster } as CallerHost, verify }, context);
  return { agent, end, far, lines, serve, cluster };
}

test("a CONNECT of a caller that speaks no HTTP is answered, carried in both directions, and logged", async () => {
  const { agent, end, far, lines, serve, cluster } = connectOf({
    onTarget: (stream) => void stream.on("end", () => stream.end("bye")).pipe(stream, { end: false }),
  });
  far.write("early, ");
  await turn();
  await serve("10.0.0.1:10250");
  assert.equal(cluster.openConnects, 1);
  far.end("late, ");
  assert.equal(await text(far), `${ESTABLISHED}early, late, bye`);
  await until(() => lines.length === 1);
  const [{ outcome, caller, target, bytesUp, bytesDown, ...line } = {} as Line] = lines;
  assert.deepEqual([outcome, caller, target, bytesUp, bytesDown], ["ok", "somebody", "10.0.0.1:10250", 13, 16]);
  assert.equal((line as { remote?: string }).remote, "10.0.0.9:4444");
  assert.deepEqual([end.refusals, end.resets, cluster.openConnects], [[], 0, 0]);
  agent.cut();
});

test("a caller that speaks no HTTP is refused with the outcome, once, and not established", async () => {
  const refused = async (authority: string, verify?: () => Promise<{ name: string }>) => {
    const { agent, end, far, lines, serve } = connectOf({
      answer: () => ({ ok: false, error: "dial_refused", detail: "nobody listens" }),
    });
    await serve(authority, verify);
    agent.cut();
    assert.deepEqual([far.readableLength, lines.length], [0, 1]);
    assert.deepEqual(lines[0]?.outcome, end.refusals[0]?.code);
    return end.refusals.map(({ code }) => code);
  };
  assert.deepEqual(await refused("no target"), ["bad_target"]);
  assert.deepEqual(await refused("10.0.0.1:443"), ["dial_refused"]);
  const denied = Promise.reject(new Error("a fault"));
  denied.catch(() => {});
  assert.deepEqual(await refused("10.0.0.1:443", () => denied), ["internal"]);
});

test("a target that resets resets a caller that speaks no HTTP, and a caller that leaves ends the dial", async () => {
  const open = connectOf({ onTarget: (stream) => stream.once("data", () => stream.reset()) });
  await open.serve("10.0.0.1:443");
  open.far.write("go away");
  await until(() => open.end.resets === 1 && open.lines.length === 1);
  open.agent.cut();
  const waiting = connectOf({ onStream: (stream) => stream.accept() });
  const served = waiting.serve("10.0.0.1:443");
  await until(() => waiting.agent.streams.length === 1);
  waiting.far.destroy();
  waiting.end.stream.destroy();
  await served;
  assert.deepEqual(
    waiting.end.refusals.map(({ code }) => code),
    ["caller_gone"],
  );
  await until(() => waiting.agent.streams[0]?.closed === true);
  waiting.agent.cut();
});

// ── a caller until its answer ────────────────────────────────────────────────────────────────────────────────────────

/** A Duplex whose writes never finish. */
class Unwritable extends Duplex {
  readonly given: string[] = [];

  override _read(): void {}

  override _write(chunk: Buffer): void {
    this.given.push(chunk.toString("latin1"));
  }
}

test("without a gap nothing waits for the answer to be done: of a caller that is gone it may never be", async () => {
  const socket = new Unwritable();
  const pending = new PendingCaller(endOf(socket), UNBOUNDED);
  await pending.establish(new Unwritable());
  assert.deepEqual(socket.given, [ESTABLISHED]);
  socket.destroy();
});

/** A caller that has sent 3,000 bytes behind its CONNECT. */
function eager(memory: ConstructorParameters<typeof PendingCaller>[1]) {
  const socket = new Unwritable();
  const pending = new PendingCaller(endOf(socket), memory);
  socket.push(Buffer.alloc(1_000));
  socket.push(Buffer.alloc(2_000));
  return { socket, pending };
}

test("what a caller sends before its answer is counted until the target has it, or it is refused", async () => {
  const pool = new MemoryPool(2 ** 20);
  const [one, other] = [eager(pool.share("red")), eager(pool.share("red"))];
  await turn();
  assert.equal(pool.held, 6_000);
  assert.equal(await one.pending.establish(new Unwritable()), 3_000);
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
  const pending = new PendingCaller(endOf(socket), pool.share("red"));
  for (let piece = 0; piece < 2_000; piece++) {
    socket.push(Buffer.alloc(20)); // a TLS record of its own
    await turn();
  }
  assert.equal(pool.held, 40_000);
  const target = new Unwritable();
  const written: number[] = [];
  target.write = ((chunk: Buffer) => written.push(chunk.length) > 0) as Duplex["write"];
  assert.equal(await pending.establish(target), 40_000);
  assert.ok(written.length < 20, `${written.length} pieces`);
  socket.destroy();
});

test("of what a caller sends before its answer 64 KiB are read, and the rest waits, counted as a window", async () => {
  const pool = new MemoryPool(2 ** 30);
  const socket = new Unwritable();
  const pending = new PendingCaller(endOf(socket), pool.share("red"));
  for (let piece = 0; piece < 20; piece++) {
    socket.push(Buffer.alloc(16 * 1024));
    await turn();
  }
  assert.deepEqual([pool.held, socket.readableLength], [(64 + 256) * 1024, 16 * 16 * 1024]);
  pending.release();
  socket.destroy();
});

test("what a caller says behind its answer ends the gap, unless it has spoken before it and may not have read it", async (t) => {
  t.mock.timers.enable({ apis: ["setTimeout"] });
  for (const early of ["", "early"]) {
    const [near, far] = duplexPair();
    const pending = new PendingCaller(endOf(near, 1_000), UNBOUNDED);
    far.resume().write(early);
    await turn();
    let isOver = false;
    const gap = pending.establish(new Unwritable()).then(() => {
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
