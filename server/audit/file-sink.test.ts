import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdirSync, readFileSync, renameSync, statSync } from "node:fs";
import { open } from "node:fs/promises";
import { type TestContext, test } from "node:test";
import { TempDir } from "../../e2e/harness/temp.ts";
import { until } from "../../shared/basics/testing/wait.ts";
import { MAX_WAITING, NOT_READ } from "./audit-sink.ts";
import { FileSink } from "./file-sink.ts";

function sinkOf(t: TestContext, path: string) {
  const counts = { lost: 0, idle: 0 };
  const sink = new FileSink(path, { onLost: () => counts.lost++, onIdle: () => counts.idle++ });
  t.after(() => sink.close());
  return { sink, counts };
}

function folder(t: TestContext): TempDir {
  const dir = new TempDir();
  t.after(() => dir[Symbol.dispose]());
  return dir;
}

test("a line is in the file when its write returns, behind what was there, and others cannot read it", (t) => {
  const path = `${folder(t).path}/audit`;
  const { sink } = sinkOf(t, path);
  sink.write("one\n");
  assert.equal(readFileSync(path, "utf8"), "one\n");
  assert.equal(statSync(path).mode & 0o777, 0o600);
  sink.write("two\n");
  assert.equal(readFileSync(path, "utf8"), "one\ntwo\n");
  assert.deepEqual([sink.isWaiting, sink.fault], [false, undefined]);
});

test("a file that cannot be opened is an error at once", (t) => {
  assert.throws(() => sinkOf(t, `${folder(t).path}/no/such/folder`), { code: "ENOENT" });
});

test("after a rotation, lines go to the new file from the reopening on", (t) => {
  const path = `${folder(t).path}/audit`;
  const { sink } = sinkOf(t, path);
  sink.write("one\n");
  renameSync(path, `${path}.1`);
  sink.write("two\n");
  sink.reopen();
  sink.write("three\n");
  assert.equal(readFileSync(`${path}.1`, "utf8"), "one\ntwo\n");
  assert.equal(readFileSync(path, "utf8"), "three\n");
});

test("a file that cannot be opened again leaves the one before in use, and says so until it can", (t) => {
  const dir = `${folder(t).path}/logs`;
  mkdirSync(dir);
  const path = `${dir}/audit`;
  const { sink } = sinkOf(t, path);
  renameSync(dir, `${dir}.away`);
  sink.reopen();
  sink.reopen();
  sink.write("one\n");
  assert.equal(readFileSync(`${dir}.away/audit`, "utf8"), "one\n");
  assert.equal(sink.fault, "it cannot be opened again (ENOENT)");
  mkdirSync(dir);
  sink.reopen();
  sink.write("two\n");
  assert.equal(readFileSync(path, "utf8"), "two\n");
  assert.equal(sink.fault, undefined);
});

test("a FIFO in the place of the file stops nothing: the file stays in use", (t) => {
  const path = `${folder(t).path}/audit`;
  const { sink } = sinkOf(t, path);
  renameSync(path, `${path}.1`);
  execFileSync("mkfifo", [path]);
  sink.reopen();
  sink.write("one\n");
  assert.equal(readFileSync(`${path}.1`, "utf8"), "one\n");
  assert.equal(sink.fault, "it cannot be opened again (EEXIST)");
});

test("on a full disk lines wait in bounded memory, and those beyond it are counted", (t) => {
  const { sink, counts } = sinkOf(t, "/dev/full");
  sink.write("one\n");
  assert.deepEqual([sink.isWaiting, sink.fault], [true, "it cannot be written (ENOSPC)"]);
  const line = `${"x".repeat(999)}\n`;
  for (let sent = 0; sent < 2 * MAX_WAITING; sent += line.length) sink.write(line);
  const fits = Math.floor((MAX_WAITING - 4) / line.length);
  assert.equal(counts.lost, Math.ceil((2 * MAX_WAITING) / line.length) - fits);
  assert.equal(counts.idle, 0);
});

test("a FIFO that nobody reads holds up nothing; its lines come whole and in order when somebody does", async (t) => {
  const path = `${folder(t).path}/fifo`;
  execFileSync("mkfifo", [path]);
  const { sink, counts } = sinkOf(t, path);
  const line = (at: number): string => `${String(at).padStart(8, "0")} ${"x".repeat(400)}\n`;
  let sent = 0;
  while (counts.lost === 0) sink.write(line(sent++));
  assert.equal(sink.fault, undefined, "a reader may be slow");
  await until(() => sink.fault === NOT_READ);
  const reader = await open(path, "r");
  t.after(() => reader.close());
  let text = "";
  const length = (sent - 1) * line(0).length;
  const buffer = Buffer.alloc(64 * 1024);
  while (text.length < length) text += buffer.toString("latin1", 0, (await reader.read(buffer)).bytesRead);
  assert.equal(text, Array.from({ length: sent - 1 }, (_, at) => line(at)).join(""));
  await until(() => counts.idle === 1);
  assert.deepEqual([sink.isWaiting, sink.fault], [false, undefined]);
});
