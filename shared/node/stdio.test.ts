import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { closeSync, openSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { RUN_SOURCES, source } from "../runtime/testing/project.ts";

const MODULE = JSON.stringify(source("./stdio.ts", import.meta.url).href);

/** Writes to stderr whether a descriptor of its own stands for stdout, and whether writes to it wait. */
const REPORT = `
  import { readFileSync, writeSync } from "node:fs";
  import { openWithoutWaiting } from ${MODULE};
  const O_NONBLOCK = 0o4000;
  const waits = (fd) => (parseInt(/flags:\\s*(\\d+)/.exec(readFileSync("/proc/self/fdinfo/" + fd, "utf8"))[1], 8) & O_NONBLOCK) === 0;
  const fd = openWithoutWaiting(1);
  const report = { isOwn: fd !== 1, waits: waits(fd) };
  writeSync(2, JSON.stringify(report));`;
const ARGV = [...RUN_SOURCES, "--input-type=module", "-e", REPORT];

function reportOf(stdout: number | "pipe", shell = ""): unknown {
  const [command = "", ...argv] = [...(shell === "" ? [] : ["sh", "-c", shell, "sh"]), process.execPath, ...ARGV];
  return JSON.parse(spawnSync(command, argv, { stdio: ["ignore", stdout, "pipe"], encoding: "utf8" }).stderr);
}

test("a pipe is opened once more, so that no other process decides whether its writes wait", () => {
  assert.deepEqual(reportOf("pipe", '"$@" | cat'), { isOwn: true, waits: false });
});

test("a socket is made non-blocking by Node.js itself", () => {
  assert.deepEqual(reportOf("pipe"), { isOwn: false, waits: false }); // Node's pipes are sockets
});

test("a file is written as it is", (t) => {
  const file = join(tmpdir(), `stdio-${process.pid}`);
  const fd = openSync(file, "w");
  t.after(() => {
    closeSync(fd);
    rmSync(file);
  });
  assert.deepEqual(reportOf(fd), { isOwn: false, waits: true });
  assert.equal(readFileSync(file, "utf8"), "");
});
