import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { readdirSync, readFileSync } from "node:fs";
import { before, test } from "node:test";
import { promisify } from "node:util";
import { version } from "../../shared/basics/program.ts";
import { ROOT } from "../../shared/runtime/testing/project.ts";
import { requireBuilt } from "../harness/processes.ts";
import { TempDir } from "../harness/temp.ts";
import { helmMissing } from "../helm/harness/helm-program.ts";

const run = promisify(execFile);
const RELEASE = ["--import", "tsx", "scripts/release.ts"];

before(requireBuilt);

test("a dry run of the release makes each file that can be made here, and checks it", {
  skip: helmMissing(),
}, async () => {
  using dir = new TempDir();
  const out = dir.file("files");
  const { stdout } = await run(process.execPath, [...RELEASE, "--dry-run", "--no-build", "--out", out], { cwd: ROOT });
  const files = [
    "NOTES.md",
    "SHA256SUMS",
    `culvert-${version()}-${process.platform}-${process.arch}.tar.gz`,
    `culvert-${version()}.cdx.json`,
    `culvert-agent-${version()}.tgz`,
    `culvert-gateway-culvert-${version()}.tgz`,
    `culvert-server-${version()}.tgz`,
  ];
  assert.deepEqual(readdirSync(out).toSorted(), files, stdout);
  for (const file of files) assert.ok(stdout.includes(file), stdout);
  assert.match(stdout, /\nNot made here, .*:\n(?: {2}- .*\n)+$/);
  const summed = readFileSync(`${out}/SHA256SUMS`, "utf8").matchAll(/^[0-9a-f]{64} {2}(.*)$/gm);
  assert.deepEqual(
    [...summed].map(([, name]) => name),
    files.filter((name) => name !== "SHA256SUMS"),
  );
});

test("a release of a commit that is not ready makes nothing, and says why", async () => {
  using dir = new TempDir();
  const args = [...RELEASE, "--no-build", "--out", dir.file("files")];
  await assert.rejects(run(process.execPath, args, { cwd: ROOT }), ({ code, stdout }) => {
    assert.equal(code, 1);
    assert.match(stdout, /^culvert \S+ cannot be released yet:\n(?: {2}- .*\n)+/);
    return true;
  });
  assert.deepEqual(readdirSync(dir.path), []);
});
