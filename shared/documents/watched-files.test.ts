import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { promises } from "node:fs";
import { mkdir, mkdtemp, rename, rm, symlink, unlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { RUN_SOURCES, source } from "../runtime/testing/project.ts";
import { recheckAllFiles, type WatchTiming } from "./file-watcher.ts";
import { hugeFileAt, pipeAt } from "./testing/files.ts";
import { watchFiles } from "./watched-files.ts";

/** Only events, unless a directory is missing: a poll must not hide a missed event. */
const FAST: WatchTiming = { settleMs: 20, pollMs: 60_000, missingPollMs: 20 };

class Fixture implements AsyncDisposable {
  readonly directory: string;
  changes = 0;
  stop = (): void => {};

  constructor(directory: string) {
    this.directory = directory;
  }

  at(...names: string[]): string {
    return join(this.directory, ...names);
  }

  watch(names: string[], options: WatchTiming = FAST): void {
    const watch = watchFiles(
      names.map((name) => this.at(name)),
      () => this.changes++,
      options,
    );
    this.stop = () => watch.close();
  }

  async changed(count: number): Promise<void> {
    const deadline = Date.now() + 5_000;
    while (this.changes < count && Date.now() < deadline) await sleep(5);
    assert.equal(this.changes, count);
  }

  /** Nothing more is reported: another watch of the same directory has seen a later change settle. */
  async quiet(): Promise<void> {
    let marked = false;
    const mark = watchFiles([this.at("mark")], () => (marked = true), { ...FAST, settleMs: 60 });
    const before = this.changes;
    await writeFile(this.at("mark"), "x");
    while (!marked) await sleep(5);
    mark.close();
    await unlink(this.at("mark"));
    assert.equal(this.changes, before);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.stop();
    await rm(this.directory, { recursive: true, force: true });
  }
}

async function fixture(contents: Record<string, string> = {}): Promise<Fixture> {
  const files = new Fixture(await mkdtemp(join(tmpdir(), "culvert-watch-")));
  for (const [name, content] of Object.entries(contents)) await writeFile(files.at(name), content);
  return files;
}

test("a file that is written over is a change; the same content again is none", async () => {
  await using files = await fixture({ a: "1" });
  files.watch(["a"]);
  await writeFile(files.at("a"), "2");
  await files.changed(1);
  await writeFile(files.at("a"), "2");
  await files.quiet();
});

test("a change that could not be used is reported again by the next poll, until it can", async () => {
  await using files = await fixture({ a: "1" });
  const watch = watchFiles([files.at("a")], () => ++files.changes >= 3, { ...FAST, pollMs: 20 });
  files.stop = () => watch.close();
  await writeFile(files.at("a"), "2");
  await files.changed(3);
  await files.quiet();
});

test("a rename over the file is a change", async () => {
  await using files = await fixture({ a: "1", new: "2" });
  files.watch(["a"]);
  await rename(files.at("new"), files.at("a"));
  await files.changed(1);
});

test("a pipe in the place of a file is a change, and is not waited for", async () => {
  await using files = await fixture({ a: "1" });
  using _pipe = pipeAt(files.at("pipe"));
  files.watch(["a"]);
  await rename(files.at("pipe"), files.at("a"));
  await files.changed(1);
  await writeFile(files.at("new"), "2");
  await rename(files.at("new"), files.at("a"));
  await files.changed(2);
});

test("a file that cannot be used for another reason than before is a change", async () => {
  await using files = await fixture({ a: "1" });
  using _pipe = pipeAt(files.at("pipe"));
  hugeFileAt(files.at("huge"));
  files.watch(["a"]);
  await rename(files.at("pipe"), files.at("a"));
  await files.changed(1);
  await rename(files.at("huge"), files.at("a"));
  await files.changed(2);
  await unlink(files.at("a"));
  await files.changed(3);
});

test("two files written together are one change", async () => {
  await using files = await fixture({ cert: "1", key: "1" });
  files.watch(["cert", "key"], { ...FAST, settleMs: 100 });
  await writeFile(files.at("cert"), "2");
  await writeFile(files.at("key"), "2");
  await files.changed(1);
  await files.quiet();
});

test("a file that goes and comes back is two changes", async () => {
  await using files = await fixture({ a: "1" });
  files.watch(["a"]);
  await unlink(files.at("a"));
  await files.changed(1);
  await writeFile(files.at("a"), "1");
  await files.changed(2);
});

test("another file of the directory is no change", async () => {
  await using files = await fixture({ a: "1" });
  files.watch(["a"]);
  await writeFile(files.at("b"), "2");
  await files.quiet();
});

test("Kubernetes' swap of the ..data symlink is a change, again and again", async () => {
  await using files = await fixture();
  const publish = async (version: string): Promise<void> => {
    await mkdir(files.at(`..${version}`));
    await writeFile(files.at(`..${version}`, "tls.crt"), version);
    await symlink(`..${version}`, files.at("..data_tmp"));
    await rename(files.at("..data_tmp"), files.at("..data"));
  };
  await publish("1");
  await symlink("..data/tls.crt", files.at("tls.crt"));
  files.watch(["tls.crt"]);
  for (const [version, before, count] of [
    ["2", "1", 1],
    ["3", "2", 2],
    ["4", "3", 3],
  ] as const) {
    await publish(version);
    await rm(files.at(`..${before}`), { recursive: true });
    await files.changed(count);
  }
});

test("a symlink to a file elsewhere: the content there counts", async () => {
  await using elsewhere = await fixture({ real: "1" });
  await using files = await fixture();
  await symlink(elsewhere.at("real"), files.at("a"));
  files.watch(["a"]);
  await writeFile(elsewhere.at("real"), "2");
  await files.changed(1);
});

test("a directory that is missing at first, goes, and comes back is found each time", async () => {
  await using files = await fixture();
  files.watch(["late/a"]);
  await mkdir(files.at("late"));
  await writeFile(files.at("late", "a"), "1");
  await files.changed(1);
  await rm(files.at("late"), { recursive: true });
  await files.changed(2);
  await mkdir(files.at("late"));
  await writeFile(files.at("late", "a"), "2");
  await files.changed(3);
  await writeFile(files.at("late", "a"), "3");
  await files.changed(4);
});

test("the poll finds a change that caused no event", async () => {
  await using files = await fixture({ v1: "1", v2: "2" });
  await mkdir(files.at("one"));
  await mkdir(files.at("two"));
  await writeFile(files.at("one", "a"), "1");
  await writeFile(files.at("two", "a"), "2");
  await symlink("one", files.at("live"));
  files.watch(["live/a"], { ...FAST, pollMs: 20, missingPollMs: 60_000 });
  // The swapped link lies above the watched directories.
  await symlink("two", files.at("next"));
  await rename(files.at("next"), files.at("live"));
  await files.changed(1);
});

test("a change that caused no event is found when an operator asks for all files to be read again", async () => {
  await using files = await fixture({ mark: "" });
  for (const name of ["one", "two"]) {
    await mkdir(files.at(name));
    await writeFile(files.at(name, "a"), name);
  }
  await symlink("one", files.at("live"));
  files.watch(["live/a"], { ...FAST, missingPollMs: 60_000 });
  // The swapped link lies above the watched directories.
  await symlink("two", files.at("next"));
  await rename(files.at("next"), files.at("live"));
  await files.quiet();
  recheckAllFiles();
  await files.changed(1);
  files.stop();
  recheckAllFiles();
  await files.quiet();
});

test("a link to a link: each of them is watched", async () => {
  await using files = await fixture();
  for (const name of ["first", "middle", "last"]) await mkdir(files.at(name));
  for (const name of ["one", "two"]) await writeFile(files.at("last", name), name);
  await symlink(files.at("middle", "link"), files.at("first", "link"));
  await symlink(files.at("last", "one"), files.at("middle", "link"));
  files.watch(["first/link"]);
  await symlink(files.at("last", "two"), files.at("middle", "new"));
  await rename(files.at("middle", "new"), files.at("middle", "link"));
  await files.changed(1);
});

test("a link that leads to another file with the same content is followed there", async () => {
  await using files = await fixture();
  for (const name of ["one", "two"]) {
    await mkdir(files.at(name));
    await writeFile(files.at(name, "a"), "1");
  }
  await symlink(files.at("one", "a"), files.at("a"));
  files.watch(["a"]);
  await symlink(files.at("two", "a"), files.at("new"));
  await rename(files.at("new"), files.at("a"));
  await files.quiet();
  await writeFile(files.at("two", "a"), "2");
  await files.changed(1);
});

test("nothing is reported after close()", async () => {
  await using files = await fixture({ a: "1" });
  files.watch(["a"]);
  await writeFile(files.at("a"), "2");
  files.stop();
  await files.quiet();
});

test("a watch keeps no process alive", () => {
  const code = `import { watchFiles } from ${JSON.stringify(source("./watched-files.ts", import.meta.url).href)};
    watchFiles([process.execPath, "/nonexistent/culvert/a"], () => {}); console.log("watching");`;
  const args = [...RUN_SOURCES, "--input-type=module", "--eval", code];
  const child = spawnSync(process.execPath, args, { timeout: 10_000, encoding: "utf8" });
  assert.equal(child.stdout, "watching\n", child.stderr);
  assert.equal(child.status, 0);
});

test("files on a disk that does not answer hold up the check of no others", async (t) => {
  await using files = await fixture({ hung: "1", other: "1" });
  const { open } = promises;
  t.mock.method(promises, "open", (...args: Parameters<typeof open>) =>
    String(args[0]).endsWith("hung") ? new Promise(() => {}) : open(...args),
  );
  const watches = ["hung", "other"].map((name) => watchFiles([files.at(name)], () => files.changes++));
  files.stop = () => watches.forEach((watch) => void watch.close());
  for (let count = 1; count <= 2; count++) {
    await writeFile(files.at("other"), `changed ${count} times`);
    recheckAllFiles();
    await files.changed(count);
  }
});
