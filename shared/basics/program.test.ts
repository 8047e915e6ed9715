import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { copyFileSync, existsSync, mkdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { folderOf } from "../documents/testing/files.ts";
import { ROOT } from "../runtime/testing/project.ts";
import { buildInfo } from "./program.ts";

/** The revision that scripts/revision.mjs leaves in the dist/ of a folder of its own. */
function revisionIn(folder: string, env: NodeJS.ProcessEnv = {}): string | undefined {
  const { status, stderr } = spawnSync(process.execPath, [join(folder, "scripts/revision.mjs")], {
    env: { ...process.env, CULVERT_REVISION: "", ...env },
    encoding: "utf8",
  });
  assert.equal(status, 0, stderr);
  const file = join(folder, "dist/revision.json");
  return existsSync(file) ? JSON.parse(readFileSync(file, "utf8")).revision : undefined;
}

function addScript(folder: string): void {
  mkdirSync(join(folder, "scripts"), { recursive: true });
  copyFileSync(join(ROOT, "scripts/revision.mjs"), join(folder, "scripts/revision.mjs"));
}

function git(folder: string, ...parameters: readonly string[]): string {
  const identity = ["-c", "user.name=x", "-c", "user.email=x@example.com", "-c", "commit.gpgsign=false"];
  const { status, stdout, stderr } = spawnSync("git", [...identity, ...parameters], { cwd: folder, encoding: "utf8" });
  assert.equal(status, 0, stderr);
  return stdout.trim();
}

test("a build knows the commit that it was made from, or what the environment says, and nothing without either", (t) => {
  const folder = folderOf(t);
  addScript(folder);
  assert.equal(revisionIn(folder), undefined);
  assert.equal(revisionIn(folder, { CULVERT_REVISION: "abc123" }), "abc123");
  git(folder, "init", "-q");
  git(folder, "add", "scripts");
  git(folder, "commit", "-q", "-m", "first");
  assert.equal(revisionIn(folder), git(folder, "rev-parse", "HEAD"));
  git(folder, "rm", "-q", "--cached", "scripts/revision.mjs");
  assert.equal(revisionIn(folder), `${git(folder, "rev-parse", "HEAD")}-dirty`);
});

test("the commit of another project's checkout, in which this one was unpacked, is not ours", (t) => {
  const folder = folderOf(t);
  git(folder, "init", "-q");
  git(folder, "commit", "-q", "--allow-empty", "-m", "theirs");
  addScript(join(folder, "unpacked"));
  assert.equal(revisionIn(join(folder, "unpacked")), undefined);
});

test("what is not known of a build is called unknown", () => {
  const { revision, node } = buildInfo();
  assert.ok(revision !== "");
  assert.equal(node, process.versions.node);
});
