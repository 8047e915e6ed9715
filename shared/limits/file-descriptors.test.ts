import assert from "node:assert/strict";
import { closeSync, openSync, readdirSync } from "node:fs";
import { test } from "node:test";
import { type FilesLeft, fileLimit, fileLimitWarning, filesLeft, openFiles } from "./file-descriptors.ts";

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
