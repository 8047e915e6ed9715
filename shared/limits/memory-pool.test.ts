import assert from "node:assert/strict";
import { test } from "node:test";
import { setImmediate as endOfTurn, setTimeout as sleep } from "node:timers/promises";
import fc from "fast-check";
import { QueueNode } from "../basics/collections.ts";
import { until } from "../basics/testing/wait.ts";
import { MemoryMetrics } from "../runtime/common-metrics.ts";
import { Instruments } from "../runtime/metrics.ts";
import { PRESSURE, type Reclaimable } from "./memory-account.ts";
import { MemoryPool, type MemoryShare } from "./memory-pool.ts";
import { Held, MOVING } from "./testing/held.ts";

const RUNS = process.env["CI"] === "true" ? 5_000 : 500;
const KIB = 1024;
const { none, over, slowed, full } = PRESSURE;

/** The pool looks at the end of a turn, and this was asked for behind it. */
const looked = (): Promise<void> => endOfTurn();

test("above the limit the cluster that holds most ends what has stopped for longest, until a tenth is free", async () => {
  const pool = new MemoryPool(100 * KIB);
  const [blue, red] = [pool.share("blue"), pool.share("red")];
  const honest = new Held(blue, 20 * KIB);
  const older = new Held(red, 30 * KIB, 3_000);
  const newer = new Held(red, 30 * KIB, 1_000);
  const moving = new Held(red, 30 * KIB, MOVING);
  assert.equal(pool.pressure, over, "nobody is refused before it is known whether something can be ended");
  await looked();
  assert.deepEqual(
    [honest, older, newer, moving].map(({ isOver }) => isOver),
    [false, true, false, false],
  );
  assert.deepEqual([pool.pressure, pool.ended], [none, 1]);
});

test("a cluster below its part is asked for nothing, whatever it holds for readers that have stopped", async () => {
  const pool = new MemoryPool(100 * KIB);
  const [blue, red] = [pool.share("blue"), pool.share("red")];
  const blues = [1, 2, 3].map(() => new Held(blue, 15 * KIB, 60_000));
  const reds = [1, 2, 3].map(() => new Held(red, 30 * KIB, 300));
  await looked();
  assert.deepEqual([blues.filter(({ isOver }) => isOver).length, reds.filter(({ isOver }) => isOver).length], [0, 2]);
});

test("where nothing has stopped, clusters above their part are refused new streams and others are not", async () => {
  const pool = new MemoryPool(100 * KIB);
  const [blue, red] = [pool.share("blue"), pool.share("red")];
  blue.hold(10 * KIB);
  const moving = new Held(red, 95 * KIB, MOVING);
  await looked();
  assert.deepEqual([pool.pressure, red.pressure, blue.pressure], [full, full, none]);
  moving.evict();
  assert.deepEqual([pool.pressure, red.pressure], [none, none]);
});

test("a cluster above limits.memory ends what has stopped, although the process has enough", async () => {
  const pool = new MemoryPool(1_000 * KIB);
  const red = pool.share("red");
  red.cap = 50 * KIB;
  const stopped = [1, 2].map(() => new Held(red, 30 * KIB));
  assert.equal(red.pressure, slowed);
  await looked();
  assert.equal(stopped.filter(({ isOver }) => isOver).length, 1);
  assert.equal(red.reserve(21 * KIB), false, "nor does it get credit beyond it");
  assert.equal(red.reserve(20 * KIB), true);
});

test("a process that takes more than it may ends what has stopped, whatever is counted", async () => {
  const pool = new MemoryPool(1_000 * KIB);
  const red = pool.share("red");
  const stopped = [1, 2, 3].map(() => new Held(red, 100 * KIB));
  pool.onProcess(90 * KIB);
  await looked();
  assert.equal(stopped.filter(({ isOver }) => isOver).length, 1);
  pool.onProcess(0);
  assert.equal(pool.pressure, none);
});

test("what was ended counts at once: another pass before the next look at the process ends nothing more", async () => {
  const pool = new MemoryPool(1_000 * KIB);
  const [blue, red] = [pool.share("blue"), pool.share("red")];
  const stopped = [1, 2, 3, 4].map(() => new Held(red, 100 * KIB));
  pool.onProcess(90 * KIB);
  await looked();
  blue.cap = 1; // another reason for a pass
  blue.hold(2);
  await looked();
  assert.deepEqual([pool.isProcessShort, stopped.filter(({ isOver }) => isOver).length], [false, 1]);
});

test("once the process has enough again nobody is refused, although nothing was ended and nothing has moved", async () => {
  const pool = new MemoryPool(1_000 * KIB);
  const [blue, red] = [pool.share("blue"), pool.share("red")];
  blue.hold(1);
  new Held(red, 800 * KIB, MOVING);
  pool.onProcess(500 * KIB);
  await looked();
  assert.equal(red.pressure, full);
  pool.onProcess(0);
  assert.equal(red.pressure, none);
});

test("memory of the process that no cluster holds refuses no stream and ends nothing of a cluster below its part", async () => {
  const pool = new MemoryPool(1_000 * KIB);
  const [blue, red] = [pool.share("blue"), pool.share("red")];
  const honest = new Held(blue, 20 * KIB);
  const stopped = [1, 2, 3].map(() => new Held(red, 100 * KIB));
  pool.onProcess(800 * KIB);
  await looked();
  assert.deepEqual([honest.isOver, stopped.filter(({ isOver }) => isOver).length], [false, 2]);
  pool.onProcess(800 * KIB, true);
  await looked();
  assert.deepEqual([honest.isOver, blue.pressure], [false, none]);
});

test("where the process is full a cluster is refused by what its connections take, although they hold nothing", () => {
  const pool = new MemoryPool(100 * KIB);
  const [blue, red] = [pool.share("blue"), pool.share("red")];
  blue.hold(1 * KIB);
  blue.onConnection(20 * KIB);
  red.onConnection(101 * KIB);
  assert.deepEqual([blue.pressure, red.pressure], [none, none], "the process has enough");
  pool.onProcess(1, true);
  assert.deepEqual([blue.pressure, red.pressure], [none, full]);
  assert.equal(red.links.pressure, none, "its links hold nothing");
  red.onConnection(-10 * KIB);
  assert.deepEqual([blue.pressure, red.pressure], [none, none]);
});

test("what a connection leaves behind in the kernel counts while the process is short of memory, and only then", () => {
  const pool = new MemoryPool(100 * KIB);
  const red = pool.share("red");
  red.countOrphaned(10 * KIB);
  assert.equal(red.held, 0, "of a pool that is used up nobody knows what the kernel has");
  pool.onProcess(50 * KIB);
  red.countOrphaned(10 * KIB);
  pool.onProcess(20 * KIB);
  assert.equal(red.held, 10 * KIB);
  pool.onProcess(0);
  assert.equal(red.held, 0);
});

test("credit has to fit beside what is held; a cluster above its part gives some back when others are refused", () => {
  const pool = new MemoryPool(1_000);
  const [blue, red] = [pool.share("blue"), pool.share("red")];
  red.hold(400);
  assert.equal(red.reserve(601), false);
  assert.equal(red.reserve(600), true);
  assert.equal(red.mustShrink, false, "it is alone");
  assert.equal(blue.reserve(100), false);
  blue.hold(10);
  assert.deepEqual([red.mustShrink, blue.mustShrink], [true, false]);
  red.release(600);
  assert.equal(pool.reserved, 0);
  assert.equal(blue.reserve(100), true);
});

test("credit refused to a cluster below its part makes others end what has stopped, and is granted the next time", async () => {
  const pool = new MemoryPool(100 * KIB);
  const [blue, red] = [pool.share("blue"), pool.share("red")];
  const stopped = new Held(red, 40 * KIB, 21_000);
  const moving = new Held(red, 57 * KIB, 10_000);
  assert.equal(red.reserve(4 * KIB), false);
  await sleep(60);
  assert.equal(stopped.isOver, false, "red itself has more than its part");
  assert.equal(blue.reserve(4 * KIB), false);
  await until(() => stopped.isOver);
  assert.deepEqual([moving.isOver, pool.pressure], [false, none]);
  assert.equal(blue.reserve(4 * KIB), true);
  blue.release(4 * KIB);
});

/** At 100 KB/s: it holds far more than others, and stands still for 14 s between two steps. */
const steadyIn = (share: MemoryShare) => new Held(share, 60 * KIB, 13_000, 14_000);

test("above the limit a slow reader is spared, and one that has stopped is ended", async () => {
  const pool = new MemoryPool(100 * KIB);
  const red = pool.share("red");
  const steady = steadyIn(red);
  const stopped = [1, 2, 3].map(() => new Held(red, 15 * KIB, 300));
  await looked();
  assert.deepEqual([steady.isOver, stopped.filter(({ isOver }) => isOver).length], [false, 1]);
});

test("a cluster with slow readers only gets no new streams, and none of the readers is ended", async () => {
  const pool = new MemoryPool(100 * KIB);
  const red = pool.share("red");
  const steady = [1, 2].map(() => steadyIn(red));
  await looked();
  assert.deepEqual([steady.filter(({ isOver }) => isOver).length, red.pressure], [0, full]);
});

test("slow readers are ended last, when the process is short of memory or another cluster lacks its part", async () => {
  for (const lack of ["process", "part"]) {
    const pool = new MemoryPool(100 * KIB);
    const [blue, red] = [pool.share("blue"), pool.share("red")];
    const stopped = new Held(red, 10 * KIB, 300);
    const steady = [1, 2].map(() => steadyIn(red));
    if (lack === "process") pool.onProcess(50 * KIB);
    else assert.equal(blue.reserve(4 * KIB), false);
    await looked();
    assert.deepEqual([stopped.isOver, steady.filter(({ isOver }) => isOver).length], [true, 1], lack);
  }
});

test("a reader that pauses for more than twice as long as ever before counts as stopped", async () => {
  const pool = new MemoryPool(100 * KIB);
  const red = pool.share("red");
  const slower = new Held(red, 60 * KIB, 4_100, 2_000);
  const hour = new Held(red, 60 * KIB, 41_000, 3_600_000);
  await looked();
  assert.deepEqual([slower.isOver, hour.isOver], [false, true], "an hour counts as 20 s");
  new Held(red, 50 * KIB, MOVING);
  await looked();
  assert.equal(slower.isOver, true);
});

test("the share of a cluster that is not served any more counts until it holds nothing", () => {
  const pool = new MemoryPool(1_000);
  const red = pool.share("red");
  red.hold(10);
  red.close();
  assert.deepEqual([...pool.shares()], [red]);
  red.hold(-10);
  assert.deepEqual([...pool.shares()], []);
});

test("whatever is held and freed, in whatever pieces, pool and shares are at 0 in the end", () => {
  const piece = fc.record({ bytes: fc.nat(400), credit: fc.nat(400), stays: fc.nat(5), share: fc.nat(2) });
  const property = fc.property(fc.integer({ min: 1, max: 2_000 }), fc.array(piece), (limit, pieces) => {
    const pool = new MemoryPool(limit);
    const shares = ["a", "b", "c"].map((cluster) => pool.share(cluster));
    const present: { bytes: number; credit: number; until: number; share: MemoryShare }[] = [];
    const sum = (of: "bytes" | "credit") => present.reduce((total, each) => total + each[of], 0);
    const leave = (at: number) => {
      for (const gone of present.filter(({ until }) => until <= at)) {
        present.splice(present.indexOf(gone), 1);
        gone.share.release(gone.credit);
        gone.share.hold(-gone.bytes);
      }
    };
    for (const [at, { bytes, credit, stays, share: index }] of pieces.entries()) {
      leave(at);
      const share = shares[index] as MemoryShare;
      const granted = share.reserve(credit);
      assert.equal(granted, sum("bytes") <= limit && sum("bytes") + sum("credit") + credit <= limit);
      present.push({ bytes, credit: granted ? credit : 0, until: at + stays, share });
      share.hold(bytes);
      assert.equal(pool.pressure >= over, sum("bytes") > limit);
      assert.deepEqual([pool.held, pool.reserved], [sum("bytes"), sum("credit")]);
    }
    leave(Number.POSITIVE_INFINITY);
    assert.deepEqual([pool.held, pool.reserved, pool.pressure], [0, 0, none]);
    assert.equal(pool.fairShare, limit, "nobody holds anything");
  });
  fc.assert(property, { numRuns: RUNS });
});

test("metrics show what is held, promised, allowed, refused and ended; zeros before there is a pool", async () => {
  const make = new Instruments({ processMetrics: false });
  const metrics = new MemoryMetrics(make, "agent");
  const values = async () =>
    (await make.registry.metrics()).split("\n").filter((line) => line !== "" && !line.startsWith("#"));
  assert.deepEqual(
    (await values()).map((line) => line.split(" ")[1]),
    ["0", "0", "0", "0", "0"],
  );
  const pool = new MemoryPool(1_000);
  metrics.watch(pool);
  pool.reserve(30, 30);
  pool.share("").hold(1_200);
  pool.share("").onRefused();
  assert.deepEqual(await values(), [
    "culvert_agent_memory_held_bytes 1200",
    "culvert_agent_memory_reserved_bytes 30",
    "culvert_agent_memory_limit_bytes 1000",
    "culvert_agent_streams_refused_for_memory_total 1",
    "culvert_agent_connections_ended_for_memory_total 0",
  ]);
});

test("the server's metric names the cluster, and gives the sum where no cluster is named", async () => {
  const make = new Instruments({ processMetrics: false });
  const metrics = new MemoryMetrics(make, "server");
  const pool = new MemoryPool(1_000);
  metrics.watch(pool);
  for (const [cluster, held] of [
    ["red", 10],
    ["blue", 20],
  ] as const)
    pool.share(cluster).hold(held);
  const named = await make.registry.metrics();
  assert.match(named, /^culvert_server_memory_held_bytes\{cluster="red"\} 10\n.*\{cluster="blue"\} 20$/m);
  assert.match(await make.withoutNames.metrics(), /^culvert_server_memory_held_bytes 30$/m);
});

test("however many connections are ended, the pool looks again every 50 ms and not more often", async () => {
  const pool = new MemoryPool(100 * KIB);
  const share = pool.share("red");
  let passes = 0;
  const counted: Reclaimable = {
    get held() {
      passes++;
      return 0;
    },
    lastProgressAt: 0,
    longestPauseMs: 0,
    evict: () => {},
  };
  share.enter(new QueueNode(counted));
  const moving = new Held(share, 200 * KIB, MOVING);
  // One after the other has stood still for long enough to be ended.
  const stopped = Array.from({ length: 120 }, (_, number) => new Held(share, 10 * KIB, 200 - 5 * number));
  const begun = performance.now();
  await sleep(1_000);
  const expected = (performance.now() - begun) / 50 + 3;
  assert.deepEqual([stopped.filter(({ isOver }) => isOver).length, moving.held], [120, 200 * KIB]);
  assert.ok(passes > 1 && passes <= expected, `${passes} passes, at most ${expected} were expected`);
});
