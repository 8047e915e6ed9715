import assert from "node:assert/strict";
import { test } from "node:test";
import { FailedResumes } from "./failed-resumes.ts";

test("each reason is news once, every try counts, and strangers who find ever new words are told no more", () => {
  const failed = new FailedResumes();
  assert.deepEqual(
    ["refused", "gone", "refused", "gone"].map((reason) => failed.isNews(reason)),
    [true, true, false, false],
  );
  const told = Array.from({ length: 100 }, (_, index) => failed.isNews(`stranger ${index}`)).filter(Boolean);
  assert.deepEqual([told.length, failed.count], [14, 104]);
});
