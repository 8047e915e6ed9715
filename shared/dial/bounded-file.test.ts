import assert from "node:assert/strict";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";
import { BoundedFile } from "./credentials-file.ts";

const folder = mkdtempSync(join(tmpdir(), "culvert-bounded-"));
after(() => rmSync(folder, { recursive: true }));
const path = join(folder, "file");

test("a file is read as it is each time, and refused when it is too large", async () => {
  const file = new BoundedFile(path, 4);
  for (const content of ["", "four"]) {
    writeFileSync(path, content);
    assert.equal(String(await file.read(never())), content);
  }
  writeFileSync(path, "longer than that");
  await assert.rejects(file.read(never()), { name: "FileTooLargeError" });
});

test("a disk that does not answer keeps nobody beyond their time, and is asked once", async () => {
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
