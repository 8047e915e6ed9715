import { execFileSync, spawn } from "node:child_process";
import { closeSync, mkdtempSync, openSync, rmSync, truncateSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { TestContext } from "node:test";

/** Makes a folder that is removed after the test. */
export function folderOf(t: TestContext): string {
  const path = mkdtempSync(join(tmpdir(), "culvert-"));
  t.after(() => rmSync(path, { recursive: true, force: true }));
  return path;
}

/**
 * Makes a named pipe with a writer that opens it again and again and writes nothing. A reader that waits for the other
 * end then reads an empty file, instead of blocking the test for ever.
 */
export function pipeAt(path: string): Disposable {
  execFileSync("mkfifo", [path]);
  const loop = 'while [ -p "$0" ]; do : > "$0"; done';
  const writer = spawn("timeout", ["60", "sh", "-c", loop, path], { stdio: "ignore", detached: true });
  const end = (): void => {
    // Its process group: a signal that reaches `timeout` while it starts the shell would not reach the shell.
    if (writer.pid !== undefined && writer.exitCode === null) process.kill(-writer.pid);
  };
  return { [Symbol.dispose]: end };
}

/**
 * Makes a file of 3 GiB that takes no disk space. Node refuses to read more than 2 GiB at once, with an error of its
 * own.
 */
export function hugeFileAt(path: string): void {
  closeSync(openSync(path, "w"));
  truncateSync(path, 3 * 2 ** 30);
}
