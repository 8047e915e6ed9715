import assert from "node:assert/strict";
import fs from "node:fs";
import { appendFile, mkdir, readFile, rename, symlink, writeFile } from "node:fs/promises";
import { syncBuiltinESMExports } from "node:module";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { until } from "../basics/testing/wait.ts";
import { FileWatcher, type Suspects, type WatchTiming } from "./file-watcher.ts";
import { folderOf } from "./testing/files.ts";

/** Only events: neither a poll nor a check of directories hides a missed one. */
const EVENTS: WatchTiming = { settleMs: 20, pollMs: 60_000, missingPollMs: 60_000 };

function watcherOf(
  t: TestContext,
  timing: Partial<WatchTiming>,
  onSuspects: (suspects: Suspects<string>) => Promise<void>,
) {
  const watcher = new FileWatcher(onSuspects, { timing: { ...EVENTS, ...timing } });
  t.after(() => watcher.close());
  return watcher;
}

test("a file that is written in parts is reported when the last of them is there", async (t) => {
  const path = join(folderOf(t), "routes.yaml");
  await writeFile(path, "");
  const read: string[] = [];
  const watcher = watcherOf(t, { settleMs: 1_000 }, async () => void read.push(await readFile(path, "utf8")));
  watcher.follow("routes", [path]);
  for (let part = 0; part < 12; part++) {
    await appendFile(path, `${part};`);
    await sleep(100);
  }
  await until(() => read.length > 0, "a report");
  assert.equal(read[0], `${Array.from({ length: 12 }, (_, part) => part).join(";")};`);
});

test("a file that is written without an end is reported all the same", async (t) => {
  const path = join(folderOf(t), "busy");
  let reports = 0;
  const watcher = watcherOf(t, { settleMs: 100 }, async () => void reports++);
  watcher.follow("busy", [path]);
  for (const deadline = Date.now() + 10_000; reports === 0; await sleep(5)) {
    assert.ok(Date.now() < deadline, "a report although events go on");
    await appendFile(path, "x");
  }
});

test("links are followed again when all files are checked, so that the new directory is watched", async (t) => {
  const folder = folderOf(t);
  for (const name of ["old", "new"]) {
    await mkdir(join(folder, name));
    await writeFile(join(folder, name, "ca.crt"), name);
  }
  const link = join(folder, "current");
  await symlink("old", link);
  const suspects: Suspects<string>[] = [];
  const watcher = watcherOf(t, {}, async (each) => void suspects.push(each));
  watcher.follow("ca", [join(link, "ca.crt")]);
  await symlink("new", join(folder, "next"));
  await rename(join(folder, "next"), link); // no event: the folder of the link is not watched
  watcher.recheck();
  await until(() => suspects.includes("all"), "a check of all files");
  await writeFile(join(folder, "new", "ca.crt"), "newer");
  await until(() => suspects.some((each) => each !== "all" && each.has("ca")), "a change in the new directory");
});

test("a late error of a watcher that was replaced leaves the new one in place, to be closed with all others", async (t) => {
  const path = join(folderOf(t), "routes.yaml");
  await writeFile(path, "");
  const opened = t.mock.method(fs, "watch").mock;
  syncBuiltinESMExports();
  t.after(() => {
    opened.restore();
    syncBuiltinESMExports();
  });
  const watcher = watcherOf(t, {}, async () => {});
  let closed = 0;
  for (const _time of ["first", "again"]) {
    watcher.follow("routes", [path]);
    opened.calls.at(-1)?.result?.on("close", () => closed++);
    opened.calls[0]?.result?.emit("error", new Error("no watch is left"));
  }
  watcher.close();
  await until(() => closed === 2, "both are closed");
});
