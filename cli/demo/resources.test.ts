import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, readFileSync } from "node:fs";
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { test } from "node:test";
import { until } from "../../shared/basics/testing/wait.ts";
import { folderOf } from "../../shared/documents/testing/files.ts";
import { testCertificate } from "../../shared/link/testing/ends.ts";
import { RUN_SOURCES, source } from "../../shared/runtime/testing/project.ts";
import { ChildDied, Children } from "./resources.ts";

/** Alive, and not just waiting for its parent to ask how it ended. */
function runs(pid: number): boolean {
  const path = `/proc/${pid}/stat`;
  return existsSync(path) && !/\) Z /.test(readFileSync(path, "utf8"));
}

test("a child that ends by itself is reported with its last words", async () => {
  const children = new Children(() => {});
  children.start("sample target", ["demo-target", "0", "/nowhere/target.crt", "/nowhere/target.key"]);
  await assert.rejects(children.died, (error) => {
    assert.ok(error instanceof ChildDied);
    assert.equal(error.message, "the sample target has ended by itself (exit code 1)");
    assert.match(error.log.join("\n"), /ENOENT.*\/nowhere\/target\.crt/);
    return true;
  });
  await children.close();
});

test("children end with close, and with a parent that was killed", async (t) => {
  const dir = folderOf(t);
  const { leaf } = await testCertificate();
  const files = [join(dir, "target.crt"), join(dir, "target.key")] as const;
  await writeFile(files[0], leaf.cert);
  await writeFile(files[1], leaf.key);

  const children = new Children(() => {});
  const child = children.start("target", ["demo-target", "0", ...files]);
  await Promise.race([child.firstLine, children.died]);
  assert.equal(runs(child.pid), true);
  await children.close();
  assert.equal(runs(child.pid), false);
  assert.throws(() => children.start("target", []), /ending/);

  const program = `
    import { Children } from ${JSON.stringify(source("resources.ts", import.meta.url).href)};
    const child = new Children(() => {}).start("target", ${JSON.stringify(["demo-target", "0", ...files])});
    await child.firstLine;
    console.log(child.pid);
  `;
  const script = join(dir, "parent.mjs");
  await writeFile(script, program);
  const parent = spawn(process.execPath, [...RUN_SOURCES, script], { stdio: ["ignore", "pipe", "inherit"] });
  const [line] = await once(parent.stdout, "data");
  const orphan = Number(String(line));
  assert.equal(runs(orphan), true);
  parent.kill("SIGKILL");
  await until(() => !runs(orphan));
});
