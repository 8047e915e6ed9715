import assert from "node:assert/strict";
import { chmod, mkdir, mkdtemp, readdir, rm, stat, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { type TestContext, test } from "node:test";
import { ConfigError } from "../../shared/config/options.ts";
import { makeFolder } from "./output-folder.ts";

async function temporary(t: TestContext): Promise<string> {
  const path = await mkdtemp(join(tmpdir(), "culvert-folder-"));
  t.after(() => rm(path, { recursive: true, force: true }));
  return path;
}

test("a folder is made with its parents, for this user only, and one that exists stays as it is", async (t) => {
  const dir = await temporary(t);
  const path = await makeFolder(join(dir, "a", "b", ""));
  assert.equal(path, resolve(dir, "a", "b"));
  assert.equal(((await stat(path)).mode & 0o777).toString(8), "700");
  await chmod(path, 0o755);
  await writeFile(join(path, "kept"), "");
  await Promise.all([makeFolder(path), makeFolder(path)]);
  assert.equal(((await stat(path)).mode & 0o777).toString(8), "755");
  assert.deepEqual(await readdir(path), ["kept"]);
});

test("two at once make one folder", async (t) => {
  const path = join(await temporary(t), "a", "b", "c");
  assert.deepEqual(await Promise.all([makeFolder(path), makeFolder(path)]), [path, path]);
});

test("a folder that cannot be made is a sentence, not an errno", async (t) => {
  const dir = await temporary(t);
  await writeFile(join(dir, "file"), "");
  await mkdir(join(dir, "x"));
  const cases: [string, RegExp][] = [
    ["", /^--dir needs the name of a folder$/],
    [join(dir, "file"), /^nothing can be written into .*\/file: a file is in the way$/],
    [join(dir, "file", "b"), /^nothing can be written into .*\/file\/b: a file is in the way$/],
    [join(dir, "x".repeat(300)), /: the path is too long$/],
    // Where `mkdir` with `recursive` never comes back.
    ["/proc/culvert", /^nothing can be written into \/proc\/culvert: there is no such folder, and it cannot be made$/],
  ];
  for (const [path, pattern] of cases) {
    await assert.rejects(makeFolder(path), (error) => {
      assert.ok(error instanceof ConfigError);
      assert.match(error.message, pattern);
      return true;
    });
  }
});
