import assert from "node:assert/strict";
import { createHash, randomBytes } from "node:crypto";
import { once } from "node:events";
import net from "node:net";
import { Duplex, duplexPair, PassThrough } from "node:stream";
import { test } from "node:test";
import { setImmediate as turn } from "node:timers/promises";
import fc from "fast-check";
import { until } from "../basics/testing/wait.ts";
import { MemoryPool } from "../limits/memory-pool.ts";
import { collectGarbage } from "../node/engine.ts";
import { endedByReset } from "./reset.ts";
import { type SpliceOptions, type SpliceTotals, splice } from "./splice.ts";

const KIB = 1024;
const RUNS = process.env["CI"] === "true" ? 1_000 : 100;
const MIB = 1024 * KIB;

interface World extends AsyncDisposable {
  /** The ends of the caller and of the target; the splice holds the other ends. */
  readonly caller: net.Socket;
  readonly target: net.Socket;
  readonly inner: { readonly caller: net.Socket; readonly target: net.Socket };
  readonly totals: Promise<SpliceTotals>;
}

async function tcpPair(): Promise<[net.Socket, net.Socket]> {
  const server = net.createServer({ allowHalfOpen: true });
  await once(server.listen(0, "127.0.0.1"), "listening");
  const near = net.connect({
    port: (server.address() as net.AddressInfo).port,
    host: "127.0.0.1",
    allowHalfOpen: true,
  });
  const [[far]] = await Promise.all([once(server, "connection"), once(near, "connect")]);
  server.close();
  near.on("error", () => {});
  return [near, far];
}

/** A splice over TCP that resets as the server and the agent do. */
async function tcpWorld(options: SpliceOptions = {}): Promise<World> {
  const [caller, callerInner] = await tcpPair();
  const [target, targetInner] = await tcpPair();
  const totals = splice(callerInner, targetInner, {
    resetCaller: () => callerInner.resetAndDestroy(),
    resetTarget: () => targetInner.resetAndDestroy(),
    ...options,
  });
  const sockets = [caller, callerInner, target, targetInner];
  return {
    caller,
    target,
    inner: { caller: callerInner, target: targetInner },
    totals,
    async [Symbol.asyncDispose]() {
      for (const socket of sockets) socket.destroy();
      await totals;
    },
  };
}

async function digest(side: Duplex): Promise<string> {
  const hash = createHash("sha256");
  side.on("data", (chunk) => hash.update(chunk));
  await once(side, "end");
  return hash.digest("hex");
}

const sha256 = (bytes: Buffer): string => createHash("sha256").update(bytes).digest("hex");

test("bytes arrive whole both ways at once, however much is corked", async () => {
  for (const cork of [false, true]) {
    await using world = await tcpWorld({ corkCaller: cork, corkTarget: cork });
    const up = randomBytes(20 * MIB + 1);
    const down = randomBytes(12 * MIB + 3);
    const heard = Promise.all([digest(world.target), digest(world.caller)]);
    world.caller.end(up);
    world.target.end(down);
    assert.deepEqual(await heard, [sha256(up), sha256(down)]);
    const { bytesUp, bytesDown, error } = await world.totals;
    assert.deepEqual([bytesUp, bytesDown, error], [up.length, down.length, undefined]);
  }
});

test("the source is paused for as long as pace says, and every byte and end still arrives", async () => {
  let rests = 0;
  let readWhileResting = 0;
  let restUntil = 0;
  const pace = (): number => {
    if (performance.now() < restUntil - 1) readWhileResting++;
    restUntil = performance.now() + 5;
    rests++;
    return 5;
  };
  await using world = await tcpWorld({ pace });
  const payload = randomBytes(MIB);
  const arrived = digest(world.target);
  world.caller.end(payload);
  assert.equal(await arrived, sha256(payload));
  world.target.end();
  world.caller.resume();
  assert.equal((await world.totals).error, undefined);
  assert.ok(rests >= MIB / (64 * KIB), `${rests} rests`);
  assert.equal(readWhileResting, 0);
});

test("pauses of less than a millisecond add up: small chunks take as long as large ones", async () => {
  const CHUNKS = 200;
  const source = Duplex.from(Array.from({ length: CHUNKS }, () => Buffer.alloc(500)));
  const sink = new PassThrough();
  sink.resume();
  const begun = performance.now();
  const spliced = splice(source, sink, { pace: (bytes) => bytes / 1_000 });
  await once(sink, "end");
  const leastMs = (CHUNKS * 0.5) / 2; // a timer may be early by a part of its millisecond
  const tookMs = performance.now() - begun;
  assert.ok(tookMs >= leastMs, `${tookMs} of ${leastMs} ms`);
  sink.destroy();
  await spliced;
});

test("half-close goes each way: after one side's end the other still answers at length", async () => {
  for (const first of ["caller", "target"] as const) {
    await using world = await tcpWorld({ corkCaller: true });
    const [asks, answers] = first === "caller" ? [world.caller, world.target] : [world.target, world.caller];
    const answer = randomBytes(8 * MIB);
    const asked = digest(answers);
    asks.end("question");
    assert.equal(await asked, sha256(Buffer.from("question")));
    await turn();
    const heard = digest(asks);
    answers.end(answer);
    assert.equal(await heard, sha256(answer));
    const totals = await world.totals;
    assert.deepEqual([totals.endedBy, totals.error], [first, undefined]);
  }
});

test("a reset of one side is a reset of the other, and is reported", async () => {
  for (const first of ["caller", "target"] as const) {
    await using world = await tcpWorld();
    const other = first === "caller" ? world.target : world.caller;
    world.caller.write("up");
    world.target.write("down");
    await Promise.all([once(world.caller, "data"), once(world.target, "data")]);
    const reset = once(other, "error");
    world[first].resetAndDestroy();
    const totals = await world.totals;
    assert.deepEqual([totals.endedBy, totals.error?.message], [first, "read ECONNRESET"]);
    assert.deepEqual([totals.bytesUp, totals.bytesDown], [2, 4]);
    assert.equal((await reset)[0].code, "ECONNRESET");
  }
});

test("a reset in the midst of a transfer that the other side does not read is a reset at once", async () => {
  await using world = await tcpWorld({ corkTarget: true });
  world.target.pause();
  const block = Buffer.alloc(MIB);
  for (let index = 0; index < 12; index++) world.caller.write(block);
  await until(() => world.inner.target.writableLength >= 64 * KIB && world.inner.caller.isPaused());
  world.caller.resetAndDestroy();
  const { endedBy, error } = await world.totals;
  assert.equal(endedBy, "caller");
  assert.ok(error);
  let ended = false; // libuv may report a reset as an end: reset.ts
  world.target.on("end", () => {
    ended = !endedByReset(world.target);
  });
  world.target.resume();
  await until(() => world.target.closed || world.target.readableEnded);
  assert.equal(ended, false, "a clean end");
});

test("a reset that comes behind bytes the splice had no room for is a reset to the other side, never an end", async () => {
  for (const first of ["caller", "target"] as const) {
    const second = first === "caller" ? "target" : "caller";
    for (let round = 0; round < 10; round++) {
      await using world = await tcpWorld();
      let ended = false;
      let received = 0;
      world[second].on("end", () => {
        ended = !endedByReset(world[second]);
      });
      world[first].write(Buffer.alloc(32 * MIB));
      while (world.inner[first].bytesRead === 0 || !world.inner[first].isPaused()) await turn();
      world[first].resetAndDestroy();
      await turn();
      world[second].on("data", (chunk: Buffer) => {
        received += chunk.length;
      });
      await until(() => world[second].closed || world[second].readableEnded);
      assert.ok(received < 32 * MIB, "the premise: cut in the middle");
      assert.equal(ended, false, `${second} saw an end after ${received} bytes`);
      const { error } = await world.totals;
      assert.ok(error, `the reset of the ${first} is told`);
    }
  }
});

test("a side that closes before both have ended fails the splice", async () => {
  const [caller, target] = [duplexPair(), duplexPair()];
  const spliced = splice(caller[1], target[1]);
  caller[0].write("hello");
  await once(target[0], "readable");
  caller[1].destroy();
  const totals = await spliced;
  assert.deepEqual([totals.endedBy, totals.bytesUp], ["caller", 5]);
  assert.match(totals.error?.message ?? "", /the caller closed before both directions had ended/);
  assert.ok(target[1].destroyed);
});

test("sides that ended, closed or were paused before the splice are treated as they are", async (t) => {
  await t.test("a source whose end was heard already", async () => {
    const [caller, target] = [duplexPair(), duplexPair()];
    caller[0].end();
    caller[1].resume();
    await once(caller[1], "end");
    const spliced = splice(caller[1], target[1]);
    target[0].resume().end("answer");
    await once(target[0], "end");
    caller[0].resume();
    const totals = await spliced;
    assert.deepEqual([totals.endedBy, totals.bytesDown, totals.error], ["caller", 6, undefined]);
  });
  await t.test("a source with bytes and its end still in the buffer", async () => {
    const [caller, target] = [duplexPair(), duplexPair()];
    caller[0].end("request");
    await once(caller[1], "readable");
    const spliced = splice(caller[1], target[1]);
    const heard = digest(target[0]);
    target[0].end();
    caller[0].resume();
    assert.equal(await heard, sha256(Buffer.from("request")));
    assert.equal((await spliced).error, undefined);
  });
  await t.test("a paused source", async () => {
    const [caller, target] = [duplexPair(), duplexPair()];
    caller[1].pause();
    const spliced = splice(caller[1], target[1]);
    const heard = digest(target[0]);
    caller[0].end("request");
    target[0].end();
    caller[0].resume();
    assert.equal(await heard, sha256(Buffer.from("request")));
    await spliced;
  });
  for (const when of ["destroyed just now", "closed long ago"]) {
    await t.test(`a side ${when}`, async () => {
      const [, caller] = duplexPair();
      // Takes its time to close, as a socket does.
      const target = new Duplex({ read() {}, destroy: (error, done) => void setTimeout(done, 20, error) });
      caller.on("error", () => {});
      caller.destroy(new Error("gone"));
      if (when === "closed long ago") await until(() => caller.closed);
      const totals = await splice(caller, target);
      assert.deepEqual([totals.endedBy, totals.error?.message], ["caller", "gone"]);
      assert.ok(caller.closed && target.closed, "resolves when both have closed");
    });
  }
  await t.test("both sides closed", async () => {
    const sides = [duplexPair()[1], duplexPair()[1]] as const;
    for (const side of sides) side.destroy();
    assert.ok((await splice(...sides)).error);
  });
});

test("a side that cannot half-close and so drops what still arrives is a failure, not an end", async () => {
  const [near, far] = duplexPair({ allowHalfOpen: false });
  const target = duplexPair();
  near.resume();
  const spliced = splice(far, target[1]);
  target[0].write("before ");
  near.end();
  await once(target[0].resume(), "end");
  const totals = await spliced;
  assert.match(totals.error?.message ?? "", /the caller closed before both directions had ended/);
  assert.ok(target[1].destroyed);
});

test("errors after the end are ignored, and both may end or fail in one turn", async () => {
  const [caller, target] = [duplexPair(), duplexPair()];
  const spliced = splice(caller[1], target[1]);
  caller[0].resume().end("a");
  target[0].resume().end("b");
  const totals = await spliced;
  assert.deepEqual([totals.bytesUp, totals.bytesDown, totals.error], [1, 1, undefined]);
  caller[1].emit("error", new Error("late"));

  const failing = [duplexPair()[1], duplexPair()[1]] as const;
  const failed = splice(...failing);
  failing[1].destroy(new Error("first"));
  failing[0].destroy(new Error("second"));
  const { endedBy, error } = await failed;
  assert.deepEqual([endedBy, error?.message], ["target", "first"]);
});

test("whatever order two sides write, end, pause and fail in: a prefix at most is lost, and only with an error", async () => {
  const side = fc.constantFrom("caller" as const, "target" as const);
  const operation = fc.oneof(
    {
      weight: 6,
      arbitrary: fc.record({ do: fc.constant("write" as const), side, size: fc.integer({ min: 1, max: 70_000 }) }),
    },
    { weight: 4, arbitrary: fc.record({ do: fc.constant("turn" as const) }) },
    {
      weight: 2,
      arbitrary: fc.record({ do: fc.constantFrom("pause" as const, "resume" as const, "end" as const), side }),
    },
    { weight: 1, arbitrary: fc.record({ do: fc.constant("fail" as const), side }) },
  );
  const pool = randomBytes(MIB);
  await fc.assert(
    fc.asyncProperty(
      fc.array(operation, { maxLength: 25 }),
      fc.boolean(),
      fc.boolean(),
      async (operations, ...cork) => {
        const pairs = { caller: duplexPair(), target: duplexPair() };
        const sent = { caller: [] as Buffer[], target: [] as Buffer[] };
        const heard = { caller: [] as Buffer[], target: [] as Buffer[] };
        const over = { caller: false, target: false };
        const names = ["caller", "target"] as const;
        for (const name of names) {
          pairs[name][0]
            .on("data", (chunk) => heard[name].push(chunk))
            .on("error", () => {})
            .on("end", () => {
              over[name] = true;
            });
        }
        // From Node 22 on, one side of a pair hears the other's destroy: as an end, unless there is an error.
        const reset = (name: "caller" | "target") => () => void pairs[name][1].destroy(new Error("reset"));
        const spliced = splice(pairs.caller[1], pairs.target[1], {
          corkCaller: cork[0],
          resetCaller: reset("caller"),
          corkTarget: cork[1],
          resetTarget: reset("target"),
        });
        let failed: "caller" | "target" | undefined;
        let at = 0;
        for (const op of operations) {
          if (op.do === "turn") await turn();
          else if (op.do === "fail") {
            if (pairs[op.side][1].destroyed) continue;
            failed ??= op.side;
            pairs[op.side][1].destroy(new Error("injected"));
          } else if (op.do === "write") {
            if (pairs[op.side][0].writableEnded) continue;
            at = (at + 7) % 1000;
            const chunk = pool.subarray(at, at + op.size);
            sent[op.side].push(chunk);
            pairs[op.side][0].write(chunk);
          } else pairs[op.side][0][op.do]();
        }
        for (const name of names) pairs[name][0].resume().end();
        const totals = await spliced;
        if (totals.error === undefined) await until(() => over.caller && over.target);
        const [up, down] = [Buffer.concat(sent.caller), Buffer.concat(sent.target)];
        const [atTarget, atCaller] = [Buffer.concat(heard.target), Buffer.concat(heard.caller)];
        if (failed === undefined) {
          assert.equal(totals.error, undefined);
          assert.ok(atTarget.equals(up) && atCaller.equals(down));
          assert.deepEqual([totals.bytesUp, totals.bytesDown], [up.length, down.length]);
        } else {
          assert.equal(totals.error?.message, "injected");
          assert.ok(up.subarray(0, atTarget.length).equals(atTarget));
          assert.ok(down.subarray(0, atCaller.length).equals(atCaller));
          assert.ok(totals.bytesUp >= atTarget.length && totals.bytesDown >= atCaller.length);
          assert.ok(!over.target || atTarget.length === up.length, "who hears an end has heard all");
          assert.ok(!over.caller || atCaller.length === down.length, "who hears an end has heard all");
        }
      },
    ),
    { numRuns: RUNS },
  );
});

for (const how of ["in order, after bytes had waited", "by a cut, while a limit slowed it down"] as const) {
  test(`a splice that has ended ${how}, is not checked any more, and nothing keeps it alive`, async () => {
    const memory = new MemoryPool(MIB).share("red");
    const splicedAndOver = async (): Promise<WeakRef<Duplex>> => {
      const [[caller, callerInner], [target, targetInner]] = [duplexPair(), duplexPair()];
      const pace = how.startsWith("by a cut") ? () => 3_600_000 : undefined;
      const totals = splice(callerInner, targetInner, { stallTimeoutMs: 60_000, memory, pace });
      caller.write(Buffer.alloc(100 * KIB));
      target.write("x");
      await until(() => memory.held > 0);
      if (pace !== undefined) callerInner.destroy(new Error("cut"));
      for (const side of [caller, target])
        side
          .resume()
          .on("error", () => {})
          .end();
      await totals;
      return new WeakRef(callerInner);
    };
    const socket = await splicedAndOver();
    assert.equal(memory.held, 0);
    for (let turns = 0; turns < 20 && socket.deref() !== undefined; turns++) {
      await turn();
      collectGarbage();
    }
    assert.equal(socket.deref(), undefined);
  });
}
