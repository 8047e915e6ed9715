import assert from "node:assert/strict";
import { test } from "node:test";
import { fileLimit, fileLimitWarning } from "./file-limit.ts";

const limits = (soft: string) =>
  `Limit                     Soft Limit           Hard Limit           Units\nMax open files            ${soft.padEnd(20)} 524288               files\n`;

test("the limit is the soft one, and none where there is none or nobody tells", () => {
  assert.equal(fileLimit(limits("1024")), 1_024);
  assert.equal(fileLimit(limits("unlimited")), undefined);
  assert.equal(fileLimit(""), undefined);
  if (process.platform === "linux") assert.notEqual(fileLimit(), 0);
});

test("a limit below what may come in is warned of with both numbers and a cure, and no other", () => {
  assert.match(
    fileLimitWarning(28_672, "strangers", 4_096) ?? "",
    /may have 4096 files open, and strangers can take 28672: .*ulimit -n 28672/,
  );
  assert.equal(fileLimitWarning(4_096, "strangers", 4_096), undefined);
});
