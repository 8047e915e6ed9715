import assert from "node:assert/strict";
import { existsSync, mkdirSync, rmSync, utimesSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { ManagedProcess } from "./processes.ts";
import { sweepStale, TempDir } from "./temp.ts";

function script(dir: TempDir, text: string): string {
  const path = dir.file("script.mjs");
  writeFileSync(path, text);
  return path;
}

test("a process's log, figures and end are seen", async () => {
  using dir = new TempDir();
  const path = script(
    dir,
    `console.log("ready " + process.argv[2]); console.error("careful"); setInterval(() => {}, 1000);`,
  );
  await using child = new ManagedProcess("child", path, ["now"]);
  assert.equal(await child.waitForLog(/^ready/), "ready now");
  await child.waitForLog("careful");
  assert.ok(child.rssBytes() > 10_000_000);
  assert.ok(child.peakRssBytes() >= child.rssBytes());
  assert.ok(child.fdCount() > 3);
  assert.ok(child.cpuSeconds() >= 0);
  child.kill("SIGTERM");
  assert.deepEqual(await child.exited, { code: null, signal: "SIGTERM" });
});

test("waiting for a log line fails at once, with the log, when the process ends", async () => {
  using dir = new TempDir();
  await using child = new ManagedProcess("child", script(dir, `console.log("no such flag"); process.exit(3)`), []);
  await assert.rejects(child.waitForLog("ready", 20_000), /child ended \(3\) before: log line ready\n.*no such flag/s);
});

test("a process that ignores SIGTERM, or is stopped, is killed in the end", async () => {
  using dir = new TempDir();
  const child = new ManagedProcess(
    "stubborn",
    script(dir, `process.on("SIGTERM", () => {}); console.log("up"); setInterval(() => {}, 1000)`),
    [],
  );
  await child.waitForLog("up");
  child.kill("SIGSTOP");
  await child.stop(200);
  assert.equal((await child.exited).signal, "SIGKILL");
});

test("folders of failed runs are removed after an hour, younger ones stay", () => {
  using young = new TempDir();
  const old = join(tmpdir(), `culvert-e2e-old-${process.pid}`);
  mkdirSync(old);
  utimesSync(old, 1, Date.now() / 1000 - 3700);
  try {
    sweepStale(Date.now(), tmpdir(), true);
    assert.equal(existsSync(old), false);
    assert.equal(existsSync(young.path), true);
  } finally {
    rmSync(old, { recursive: true, force: true });
  }
});
