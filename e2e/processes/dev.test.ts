import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { appendFileSync, cpSync, symlinkSync } from "node:fs";
import { readdir } from "node:fs/promises";
import { join } from "node:path";
import { test } from "node:test";
import { until } from "../../shared/basics/testing/wait.ts";
import { ROOT } from "../../shared/runtime/testing/project.ts";
import { TempDir } from "../harness/temp.ts";

const SOURCES = ["agent", "cli", "router", "server", "shared", "sidecars", "package.json", "tsconfig.json"];

test("npm run dev runs the demo from sources, begins again when a file has changed, and leaves nothing", async (t) => {
  using dir = new TempDir();
  for (const name of SOURCES) cpSync(join(ROOT, name), dir.file(name), { recursive: true });
  symlinkSync(join(ROOT, "node_modules"), dir.file("node_modules"));
  const tmp = dir.file("tmp");
  cpSync(join(ROOT, "docs/errors.md"), dir.file("docs/errors.md"));
  cpSync(join(ROOT, "LICENSE"), join(tmp, "LICENSE"));

  const child = spawn("npm", ["run", "-s", "dev"], {
    cwd: dir.path,
    env: { ...process.env, TMPDIR: tmp },
    stdio: ["ignore", "pipe", "pipe"],
    detached: true,
  });
  t.after(() => endGroup(child.pid, "SIGKILL"));
  let said = "";
  for (const stream of [child.stdout, child.stderr]) stream.on("data", (chunk) => (said += String(chunk)));
  const shown = (): number => said.split("Ctrl-C ends everything").length - 1;
  const folders = async () => (await readdir(tmp)).filter((name) => name.startsWith("culvert-demo-"));

  await until(
    () => shown() === 1,
    () => said,
  );
  appendFileSync(dir.file("shared/link/link.ts"), "// changed\n");
  await until(
    () => shown() === 2,
    () => said,
  );
  assert.equal((await folders()).length, 1, "the demo before has ended");

  endGroup(child.pid, "SIGINT");
  await once(child, "close");
  assert.deepEqual(await folders(), []);
});

/** As a terminal does it, with all processes of `npm run`. */
function endGroup(pid: number | undefined, signal: NodeJS.Signals): void {
  try {
    process.kill(-(pid ?? 0), signal);
  } catch {
    // They are gone.
  }
}
