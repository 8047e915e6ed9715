import assert from "node:assert/strict";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { FileVersion } from "./kerberos-tickets.ts";

test("a file that changes has another version, and one that cannot be looked at has one as well", async (t) => {
  const dir = mkdtempSync(join(tmpdir(), "culvert-version-"));
  t.after(() => rmSync(dir, { recursive: true }));
  const path = join(dir, "cache");
  const version = new FileVersion(path);
  assert.equal(await version.read(), "ENOENT");
  writeFileSync(path, "ticket");
  const first = await version.read();
  assert.equal(await version.read(), first);
  writeFileSync(path, "another ticket");
  assert.notEqual(await version.read(), first);
  assert.equal(await new FileVersion(join(path, "below")).read(), "ENOTDIR");
  const forbidden = new FileVersion(path, async () => {
    throw Object.assign(new Error("permission denied"), { code: "EACCES" });
  });
  assert.equal(await forbidden.read(), "EACCES");
});

test("a disk that does not answer is asked once, holds nobody for long, and changes nothing", async (t) => {
  t.mock.timers.enable({ apis: ["setTimeout"] });
  const answers: ((stats: { ino: number; size: number; mtimeMs: number }) => void)[] = [];
  const version = new FileVersion("/net/keytab", () => new Promise((resolve) => answers.push(resolve)));
  const seen = version.read();
  answers[0]?.({ ino: 1, size: 2, mtimeMs: 3 });
  assert.equal(await seen, "1 2 3");
  for (let reading = 0; reading < 3; reading++) {
    const late = Promise.all([version.read(), version.read()]);
    t.mock.timers.tick(1_000);
    assert.deepEqual(await late, ["1 2 3", "1 2 3"]);
  }
  assert.equal(answers.length, 2);
  const back = version.read();
  answers[1]?.({ ino: 1, size: 9, mtimeMs: 4 });
  assert.equal(await back, "1 9 4");
});
