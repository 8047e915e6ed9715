import assert from "node:assert/strict";
import { closeSync, openSync } from "node:fs";
import { test } from "node:test";
import { openFiles } from "./file-limit.ts";
import { type FilesLeft, FileWatch, filesLeft } from "./file-watch.ts";

const TABLE: ReadonlyArray<readonly [open: number, limit: number, before: FilesLeft, now: FilesLeft]> = [
  [899, 1_000, "enough", "enough"],
  [900, 1_000, "enough", "few"],
  [800, 1_000, "few", "few"],
  [799, 1_000, "few", "enough"],
  [937, 1_000, "few", "few"],
  [938, 1_000, "few", "none"], // a sixteenth of a small limit is kept back
  [899, 1_000, "none", "few"],
  [99_935, 100_000, "few", "few"],
  [99_936, 100_000, "few", "none"], // 64 of a large one
];

test("few are told from 90 % on and enough below 80 %, and the last ones count as none", () => {
  for (const [open, limit, before, now] of TABLE) {
    assert.equal(filesLeft(open, limit, before), now, `${open} of ${limit} after ${before}`);
  }
});

test("each change is told once, within a second, and sooner while there are few", (t) => {
  t.mock.timers.enable({ apis: ["setTimeout"] });
  let open: number | undefined = 10;
  const told: string[] = [];
  const watch = new FileWatch({
    limit: 1_000,
    count: () => open,
    onChange: ({ left, open, limit }) => told.push(`${left} ${open}/${limit}`),
  });
  watch.start();
  assert.equal(watch.seen?.left, "enough");
  open = 950;
  // A look takes no time to speak of, and it rests for a hundred times as long.
  t.mock.timers.tick(1_500);
  t.mock.timers.tick(500);
  assert.deepEqual(told, ["none 950/1000"]);
  open = 850;
  t.mock.timers.tick(500);
  open = 0;
  t.mock.timers.tick(500);
  open = undefined; // looking takes one, too
  t.mock.timers.tick(1_500);
  assert.deepEqual(told.slice(1), ["few 850/1000", "enough 0/1000", "none 1000/1000"]);
  watch.stop();
  open = 0;
  t.mock.timers.tick(5_000);
  assert.equal(told.length, 4);
});

test("open files are counted", { skip: process.platform !== "linux" }, () => {
  const before = openFiles() ?? 0;
  const opened = Array.from({ length: 5 }, () => openSync("/dev/null", "r"));
  try {
    assert.equal(openFiles(), before + 5);
  } finally {
    for (const fd of opened) closeSync(fd);
  }
});
