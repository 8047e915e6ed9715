import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { CHARTS, IMAGE, REPOSITORY } from "../../scripts/release/addresses.ts";
import { version } from "../../shared/basics/program.ts";
import { ROOT } from "../../shared/runtime/testing/project.ts";

test("each file that names an image or charts of culvert names those of scripts/release/addresses.ts", () => {
  const found = execFileSync("git", ["grep", "-nIoE", "ghcr\\.io/[a-z0-9./_-]*", "--", ":!*.lock"], {
    cwd: ROOT,
    encoding: "utf8",
  });
  const lines = found.split("\n").filter((line) => line !== "");
  assert.ok(lines.length > 10, found);
  const known = new RegExp(`:(${IMAGE}|${CHARTS}(/culvert-(server|agent))?)[.]?$`.replaceAll(".io", "[.]io"));
  assert.deepEqual(
    lines.filter((line) => !known.test(line)),
    [],
  );
});

test("each file that names an image of culvert with a version names this one", () => {
  const found = execFileSync("git", ["grep", "-nIoE", `${IMAGE}:[0-9][0-9A-Za-z.-]*`], { cwd: ROOT, encoding: "utf8" });
  const lines = found.split("\n").filter((line) => line !== "");
  assert.deepEqual(
    lines.filter((line) => !line.endsWith(`${IMAGE}:${version()}`)),
    [],
  );
});

test("package.json has the address of the repository, or none where there is no repository", () => {
  const { repository } = JSON.parse(readFileSync(join(ROOT, "package.json"), "utf8")) as Partial<
    Record<"repository", { readonly url: string }>
  >;
  assert.equal(repository?.url, REPOSITORY && `git+${REPOSITORY}.git`);
});
