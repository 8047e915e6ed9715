import assert from "node:assert/strict";
import { existsSync } from "node:fs";
import { test } from "node:test";
import { TempDir } from "../../harness/temp.ts";
import { waitFor } from "../../harness/wait.ts";
import { run } from "./run.ts";

const ENV = { PATH: process.env["PATH"] ?? "" };

test("a command is run to its end, whatever its exit code", async () => {
  const { code, stdout, stderr } = await run(["sh", "-c", "cat; echo err >&2; exit 3"], { env: ENV, stdin: "in" });
  assert.deepEqual({ code, stdout, stderr }, { code: 3, stdout: "in", stderr: "err\n" });
});

test("a command that does not exist is said by its name", async () => {
  await assert.rejects(run(["no-such-command"], { env: ENV }), /no-such-command/);
});

test("a command whose signal is aborted has ended when that is told", async () => {
  using dir = new TempDir();
  const abort = new AbortController();
  const script = `trap 'touch ended; exit 1' INT; touch started; while :; do sleep 0.01; done`;
  const running = run(["sh", "-c", script], { env: ENV, cwd: dir.path, signal: abort.signal, killSignal: "SIGINT" });
  running.catch(() => {});
  await waitFor(() => existsSync(dir.file("started")));
  abort.abort();
  await assert.rejects(running, /aborted/);
  assert.ok(existsSync(dir.file("ended")));
});
