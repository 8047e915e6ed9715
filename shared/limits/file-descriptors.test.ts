import assert from "node:assert/strict";
import { closeSync, openSync, readdirSync } from "node:fs";
import { test } from "node:test";
import { setImmediate as turn } from "node:timers/promises";
import { createLogger } from "../runtime/logger.ts";
import { ThrottledLog } from "../runtime/throttled-log.ts";
import {
  FileDescriptors,
  type FilesLeft,
  fileLimit,
  fileLimitWarning,
  filesLeft,
  openFiles,
} from "./file-descriptors.ts";

const limits = (soft: string) =>
  `Limit                     Soft Limit           Hard Limit           Units\nMax open files            ${soft.padEnd(20)} 524288               files\n`;

test("the limit is the soft one, and undefined if there is none or the system does not tell", () => {
  assert.equal(fileLimit(limits("1024")), 1_024);
  assert.equal(fileLimit(limits("unlimited")), undefined);
  assert.equal(fileLimit(""), undefined);
  if (process.platform === "linux") assert.notEqual(fileLimit(), 0);
});

test("a small limit below what may come in causes a warning with both numbers and what to do, and no other does", () => {
  assert.match(
    fileLimitWarning(28_672, 1_024) ?? "",
    /may have 1024 files open, and could need 31903, .*ulimit -n 31903/,
  );
  assert.equal(fileLimitWarning(28_672, 4_096), undefined);
  for (let connections = 1; connections < 3_600; connections++) {
    const named = Number(/ulimit -n (\d+)/.exec(fileLimitWarning(connections, 1) ?? "")?.[1]);
    assert.equal(filesLeft(connections + 40, named, "enough"), "enough", `${connections} of ${named}`);
    assert.notEqual(filesLeft(connections + 40, named - 1, "enough"), "enough", `${connections} of ${named - 1}`);
    assert.equal(fileLimitWarning(connections, named), undefined);
  }
});

/** Before Linux 6.2 the folder says no size, and its entries are counted; this one never says any, and has the same. */
const UNSIZED = "/proc/self/fdinfo";

test("open files are counted", { skip: process.platform !== "linux" }, async () => {
  const before = await openFiles(Infinity);
  const opened = Array.from({ length: 5 }, () => openSync("/dev/null", "r"));
  try {
    assert.equal(await openFiles(Infinity), before + 5);
  } finally {
    for (const fd of opened) closeSync(fd);
  }
});

test("counted one by one they are as many", { skip: process.platform !== "linux" }, async () => {
  const differences: number[] = [];
  // The process that has just begun opens and closes some of its own meanwhile.
  while (differences.at(-1) !== 0 && differences.length < 200) {
    differences.push((await openFiles(Infinity, UNSIZED)) - (await openFiles(Infinity)));
  }
  assert.equal(differences.at(-1), 0, `${differences}`);
});

test("of those that were inherited beyond the limit the figure is never more than it, and none counts where they are listed", {
  skip: process.platform !== "linux",
}, async () => {
  const opened = Array.from({ length: 64 }, () => openSync("/dev/null", "r"));
  try {
    const limit = opened[32] ?? 0;
    assert.equal(await openFiles(5), 5);
    const differences: number[] = [];
    // The process that has just begun opens and closes some of its own meanwhile.
    while (differences.at(-1) !== 0 && differences.length < 200) {
      const beyond = readdirSync(UNSIZED).filter((name) => Number(name) >= limit).length;
      assert.ok(beyond >= 32, `${beyond} beyond ${limit}`);
      const all = await openFiles(Infinity, UNSIZED);
      differences.push((await openFiles(limit, UNSIZED)) + beyond - all);
    }
    assert.equal(differences.at(-1), 0, `${differences}`);
  } finally {
    for (const fd of opened) closeSync(fd);
  }
});

test("counting does not block the event loop, and a count that fails says why", {
  skip: process.platform !== "linux",
}, async () => {
  let turns = 0;
  let next = setImmediate(function count() {
    turns++;
    next = setImmediate(count);
  });
  const opened = Array.from({ length: 600 }, () => openSync("/dev/null", "r"));
  try {
    await openFiles(Infinity, UNSIZED);
    assert.ok(turns > 2, `${turns} turns`);
  } finally {
    clearImmediate(next);
    for (const fd of opened) closeSync(fd);
  }
  await assert.rejects(openFiles(Infinity, "/proc/self/none"), { code: "ENOENT" });
});

const TABLE: ReadonlyArray<readonly [open: number, limit: number, before: FilesLeft, now: FilesLeft]> = [
  [899, 1_000, "enough", "enough"],
  [900, 1_000, "enough", "few"],
  [801, 1_000, "few", "few"],
  [800, 1_000, "few", "enough"],
  [937, 1_000, "few", "few"],
  [938, 1_000, "few", "none"], // a sixteenth of a small limit is kept back
  [937, 1_000, "none", "none"], // until twice as many are free
  [877, 1_000, "none", "none"],
  [876, 1_000, "none", "few"],
  [801, 1_000, "none", "few"],
  [800, 1_000, "none", "enough"],
  [960, 1_024, "few", "none"],
  [959, 1_024, "none", "none"],
  [896, 1_024, "none", "few"],
  [99_935, 100_000, "few", "few"],
  [99_936, 100_000, "few", "none"], // 64 of a large one
  [99_873, 100_000, "none", "none"],
  [99_872, 100_000, "none", "few"],
  [1_010, 1_000, "few", "none"], // inherited, or the limit was lowered
];

test("there are few from 90 % on and enough from 80 % down, and the last ones are reserved", () => {
  for (const [open, limit, before, now] of TABLE) {
    assert.equal(filesLeft(open, limit, before), now, `${open} of ${limit} after ${before}`);
  }
});

test("a process that runs out of file descriptors says so with figures, counts it, and refuses connections in words", async (t) => {
  t.mock.timers.enable({ apis: ["setTimeout"] });
  const lines: Record<string, unknown>[] = [];
  const destination = { write: (line: string) => void lines.push(JSON.parse(line)) };
  const log = createLogger({ level: "info", format: "json", name: "server", destination });
  let usedUp = 0;
  let open = 100;
  const reports = { metrics: { filesUsedUp: () => usedUp++ }, throttledLog: new ThrottledLog(log) };
  const room = new FileDescriptors("this server", reports, { limit: 1_024, count: async () => open });
  const pass = async (ms: number) => {
    t.mock.timers.tick(ms);
    await turn();
  };
  room.start();
  assert.equal(room.shortage, undefined);
  room.requireRoom("overloaded");
  await turn();
  room.requireRoom("overloaded");
  assert.deepEqual([lines, room.problems()], [[], []]);

  open = 930;
  await pass(1_500);
  room.requireRoom("overloaded");
  open = 1_020;
  await pass(500);
  assert.match(room.shortage ?? "", /^this server has 1020 of its 1024 files open/);
  assert.throws(() => room.requireRoom("overloaded"), {
    code: "overloaded",
    message: "this server has 1020 of its 1024 files open: raise its limit (ulimit -n, LimitNOFILE=)",
  });
  assert.match(room.problems().join(), /^1020 of 1024 files are open: file descriptors are nearly used up/);
  open = 950;
  await pass(500);
  room.requireRoom("overloaded"); // who asks is served by what is true now
  assert.deepEqual(room.checks(), [{ name: "file-descriptors", ok: false, detail: "950 of 1024 in use" }]);
  open = 100;
  await pass(500);
  room.requireRoom("overloaded");
  room.stop();

  const told = lines.map(({ level, open, limit, msg }) => `${level} ${open}/${limit} ${msg}`);
  assert.equal(told.length, 3);
  assert.match(told[0] ?? "", /^warn 930\/1024 file descriptors run low/);
  assert.match(told[1] ?? "", /^error 1020\/1024 file descriptors are nearly used up.*ulimit -n/);
  assert.match(told[2] ?? "", /^info 100\/1024 file descriptors are enough again/);
  assert.equal(usedUp, 1);
});

test("a call that got no descriptor is a shortage of the process or of its machine, before any count shows it", () => {
  const log = createLogger({ level: "silent", format: "json", name: "router" });
  const reports = { metrics: { filesUsedUp: () => {} }, throttledLog: new ThrottledLog(log) };
  const room = new FileDescriptors("this router", reports, { limit: 1_024 });
  const failed = (code: string) => Object.assign(new Error("words"), { code });
  const own = "this router has no file descriptor left: raise its limit (ulimit -n, LimitNOFILE=)";
  assert.equal(room.shortageBehind(failed("EMFILE")), own);
  assert.equal(room.shortageBehind(new Error("not read", { cause: failed("EMFILE") })), own);
  assert.equal(room.shortageBehind(new AggregateError([failed("ECONNREFUSED"), failed("EMFILE")])), own);
  assert.equal(
    room.shortageBehind(failed("ENFILE")),
    "the machine of this router has no file descriptor left: raise fs.file-max there",
  );
  for (const other of [failed("ECONNREFUSED"), new AggregateError([failed("ETIMEDOUT")]), undefined, "EMFILE"])
    assert.equal(room.shortageBehind(other), undefined);
});

/** A watch with this count, and its reports: `error 960/1024`. */
function counted(limit: number, count: (limit: number) => Promise<number>) {
  const reported: string[] = [];
  const reports = {
    throttledLog: {
      write: (level: string, { open, limit }: { open: number; limit: number }) =>
        void reported.push(`${level} ${open}/${limit}`),
    },
    metrics: { filesUsedUp: () => {} },
  };
  return { descriptors: new FileDescriptors("the agent", reports, { limit, count }), reported };
}

test("what is new is refused from the moment on at which the reserved descriptors alone are left", async (t) => {
  t.mock.timers.enable({ apis: ["setTimeout"] });
  let open = 959;
  const { descriptors } = counted(1_024, async () => open);
  descriptors.start();
  await turn();
  assert.equal(descriptors.shortage, undefined);
  open = 960;
  t.mock.timers.tick(1_000);
  await turn();
  assert.match(descriptors.shortage ?? "", /960 of its 1024 files/);
  descriptors.stop();
});

test("a number that goes up and down at a bound is reported once", async (t) => {
  t.mock.timers.enable({ apis: ["setTimeout"] });
  let counts = 0;
  const { descriptors, reported } = counted(1_024, async () => (counts++ % 2 === 0 ? 960 : 959));
  descriptors.start();
  for (let ms = 0; ms < 10_000; ms += 150) {
    await turn();
    t.mock.timers.tick(150);
  }
  await turn();
  descriptors.stop();
  const before = counts;
  assert.ok(before > 50, `${before} counts`);
  t.mock.timers.tick(60_000);
  assert.equal(counts, before, "the stop ends the next one, too");
  assert.deepEqual(reported, ["error 960/1024"]);
});

test("a count that finds no descriptor for itself has found none left; one that fails otherwise has found nothing", async (t) => {
  t.mock.timers.enable({ apis: ["setTimeout"] });
  let code = "EACCES";
  const failing = () => Promise.reject(Object.assign(new Error("no"), { code }));
  const { descriptors, reported } = counted(1_000, failing);
  descriptors.start();
  await turn();
  for (const [next, details] of [
    ["EACCES", []],
    ["EMFILE", ["1000 of 1000 in use"]],
    ["ENOENT", []],
    ["ENFILE", ["1000 of 1000 in use"]],
  ] as const) {
    code = next;
    t.mock.timers.tick(1_100);
    await turn();
    assert.deepEqual(
      descriptors.checks().map(({ detail }) => detail),
      details,
      next,
    );
  }
  assert.deepEqual(reported, ["error 1000/1000"]);
  descriptors.stop();
});

test("there is one count at a time, and one that was under way at the stop changes nothing", async (t) => {
  t.mock.timers.enable({ apis: ["setTimeout"] });
  const counts: ((open: number) => void)[] = [];
  const { descriptors, reported } = counted(1_000, () => new Promise((resolve) => counts.push(resolve)));
  descriptors.start();
  t.mock.timers.tick(60_000);
  await turn();
  assert.equal(counts.length, 1);
  counts[0]?.(10);
  await turn();
  t.mock.timers.tick(60_000);
  assert.equal(counts.length, 2);
  descriptors.stop();
  counts[1]?.(990);
  await turn();
  t.mock.timers.tick(60_000);
  await turn();
  assert.deepEqual([reported, counts.length], [[], 2]);
});
