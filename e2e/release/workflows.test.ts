import assert from "node:assert/strict";
import { execFileSync, spawnSync } from "node:child_process";
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { ROOT } from "../../shared/runtime/testing/project.ts";
import { ACTIONLINT, findGoTool, goToolMissing } from "../harness/go-tool.ts";
import { missingProgram } from "../proxies/harness/missing.ts";

const WORKFLOWS = ".github/workflows";
const SCRIPT = /^#!\/.*\b(?:ba)?sh\b/;

const scripts = execFileSync("git", ["ls-files", "-co", "--exclude-standard"], { cwd: ROOT, encoding: "utf8" })
  .split("\n")
  .filter((file) => file !== "" && (file.endsWith(".sh") || SCRIPT.test(read(file).slice(0, 80))));

test("actionlint has no objection to the workflows, nor shellcheck to what they run", {
  skip: goToolMissing(ACTIONLINT) || missingProgram("shellcheck"),
}, () => {
  const { status, stdout, stderr } = spawnSync(findGoTool(ACTIONLINT) ?? "", ["-no-color"], {
    cwd: ROOT,
    encoding: "utf8",
  });
  assert.equal(status, 0, stdout + stderr);
});

test("shellcheck has no objection to the shell scripts", { skip: missingProgram("shellcheck") }, () => {
  assert.ok(scripts.includes(".ci/run"), scripts.join(", "));
  const { status, stdout, stderr } = spawnSync("shellcheck", scripts, { cwd: ROOT, encoding: "utf8" });
  assert.equal(status, 0, stdout + stderr);
});

for (const name of readdirSync(join(ROOT, WORKFLOWS))) {
  const text = read(join(WORKFLOWS, name));

  test(`${name} names each action by its commit, with the version beside it`, () => {
    const uses = [...text.matchAll(/uses: (.*)/g)].map(([, action = ""]) => action);
    const pinned = /^(?:[\w-]+\/)+[\w-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+$|^\.\//;
    assert.deepEqual(
      uses.filter((action) => !pinned.test(action)),
      [],
    );
  });

  test(`${name} runs only scripts that package.json has`, () => {
    const { scripts: known } = JSON.parse(read("package.json")) as { readonly scripts: Record<string, string> };
    const run = [...text.matchAll(/\bnpm (?:run (?:-s )?([\w:]+)|(test|start))/g)].map(
      ([, script, short]) => script ?? short,
    );
    assert.deepEqual(
      run.filter((script) => !Object.hasOwn(known, script ?? "")),
      [],
    );
  });
}

function read(file: string): string {
  return readFileSync(join(ROOT, file), "utf8");
}
