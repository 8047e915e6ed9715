import assert from "node:assert/strict";
import { mkdirSync, readdirSync, renameSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import test from "node:test";
import { TempDir } from "../harness/temp.ts";
import { cachedFolder, digestOf } from "./go-build.ts";

/** A cache of the test's own. */
function emptyCache(): TempDir {
  const dir = new TempDir();
  process.env["XDG_CACHE_HOME"] = dir.path;
  return dir;
}

const cached = (dir: TempDir) => readdirSync(dir.file("culvert/kubernetes"));

test("a build that fails leaves nothing behind that could be taken for whole", async () => {
  using dir = emptyCache();
  const build = async (folder: string) => {
    writeFileSync(join(folder, "half"), "");
    throw new Error("out of memory");
  };
  await assert.rejects(cachedFolder("1.0.0", build), /out of memory/);
  assert.deepEqual(cached(dir), []);
});

test("what a build that was killed has left behind is removed by the next, and one that goes on is left alone", async () => {
  using dir = emptyCache();
  const goesOn = `unfinished-${process.pid}-abcdef`;
  for (const name of ["unfinished-abcdef", "unfinished-4194305-abcdef", goesOn]) {
    mkdirSync(dir.file(`culvert/kubernetes/${name}/module`), { recursive: true });
  }
  await cachedFolder("1.0.0", async () => {});
  assert.deepEqual(cached(dir), ["1.0.0", goesOn]);
});

test("another file, another name of a file and other flags are another build", () => {
  using dir = new TempDir();
  const digests = new Set<string>();
  const take = (...flags: string[]) => digests.add(digestOf(dir.path, ...flags));
  writeFileSync(dir.file("go.mod"), "module a");
  take();
  take("-s");
  take("-s", "-w");
  writeFileSync(dir.file("go.mod"), "module b");
  take();
  renameSync(dir.file("go.mod"), dir.file("go.sum"));
  take();
  assert.equal(digests.size, 5);
  assert.equal(digestOf(dir.path), [...digests].at(-1));
});
