import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";
import { BoundedFile } from "./bounded-file.ts";

const folder = mkdtempSync(join(tmpdir(), "culvert-bounded-"));
after(() => rmSync(folder, { recursive: true }));
const path = join(folder, "file");

test("a file is read as it is each time, and no more of it than one byte too many", async () => {
  const file = new BoundedFile(path, 4);
  for (const [content, read] of [
    ["", ""],
    ["four", "four"],
    ["longer than that", "longe"],
  ] as const) {
    writeFileSync(path, content);
    assert.equal(String(await file.read(never())), read);
  }
});

test("what is no regular file is refused and not waited for", async () => {
  const pipe = join(folder, "pipe");
  execFileSync("mkfifo", [pipe]);
  await assert.rejects(new BoundedFile(pipe, 4).read(never()), /^Error: it is no regular file$/);
  await assert.rejects(new BoundedFile("/dev/zero", 4).read(never()), /^Error: it is no regular file$/);
  await assert.rejects(new BoundedFile(folder, 4).read(never()), /^Error: it is a directory$/);
  await assert.rejects(new BoundedFile(join(folder, "nothing"), 4).read(never()), { code: "ENOENT" });
});

test("a disk that does not answer keeps nobody beyond his time, and is asked once", async () => {
  let loads = 0;
  let answer = (_content: Buffer): void => assert.fail("nothing was asked");
  const file = new BoundedFile(path, 4, () => {
    loads++;
    return new Promise((resolve) => {
      answer = resolve;
    });
  });
  for (let attempt = 0; attempt < 10; attempt++) {
    const abort = new AbortController();
    const reading = file.read(abort.signal);
    abort.abort(new Error("its time is over"));
    await assert.rejects(reading, /its time is over/);
  }
  const reading = file.read(never());
  answer(Buffer.from("late"));
  assert.equal(String(await reading), "late");
  assert.equal(loads, 1);
  void file.read(never());
  assert.equal(loads, 2);
});

function never(): AbortSignal {
  return new AbortController().signal;
}
