import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { before, test } from "node:test";
import { ROOT } from "../../shared/runtime/testing/project.ts";
import { requireBuilt } from "../harness/processes.ts";
import { TempDir } from "../harness/temp.ts";
import { waitFor } from "../harness/wait.ts";

before(requireBuilt);

/** Alive, and not just waiting for its parent to ask how it has ended. */
function runs(pid: number): boolean {
  const path = `/proc/${pid}/stat`;
  return existsSync(path) && !/\) Z /.test(readFileSync(path, "utf8"));
}

for (const signal of ["SIGTERM", "SIGKILL"] as const) {
  test(`npm start leaves no process and no folder when npm alone gets ${signal}`, async (t) => {
    using tmp = new TempDir();
    const env = { ...process.env, TMPDIR: tmp.path };
    const npm = spawn("npm", ["start"], { cwd: ROOT, env, stdio: ["ignore", "pipe", "pipe"], detached: true });
    t.after(() => {
      try {
        process.kill(-(npm.pid ?? 0), "SIGKILL");
      } catch {
        // The group is gone, as it should be.
      }
    });
    let said = "";
    for (const stream of [npm.stdout, npm.stderr]) stream.on("data", (chunk) => (said += String(chunk)));
    await waitFor(() => said.includes("Ctrl-C"), { deadlineMs: 60_000, what: "the demo to be up" });
    const pids = [...said.matchAll(/(?:server|agent|target), process (\d+)/g)].map(([, pid]) => Number(pid));
    assert.equal(pids.length, 3);
    assert.ok(pids.every(runs));
    npm.kill(signal);
    await waitFor(() => !pids.some(runs), { what: "the end of server, agent and target" });
    await waitFor(() => readdirSync(tmp.path).every((name) => !name.startsWith("culvert-demo-")), {
      what: "no folder",
    });
  });
}
