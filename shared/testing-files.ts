import { execFileSync, spawn } from "node:child_process";
import { closeSync, openSync, truncateSync } from "node:fs";

/**
 * A named pipe that somebody opens for writing again and again and writes nothing into: a reader that waits for the other end
 * reads an empty file then, instead of blocking the test for ever.
 */
export function pipeAt(path: string): Disposable {
  execFileSync("mkfifo", [path]);
  const writer = spawn("timeout", ["60", "sh", "-c", 'while [ -p "$0" ]; do : > "$0"; done', path], {
    stdio: "ignore",
  });
  return { [Symbol.dispose]: () => void writer.kill() };
}

/** A file of 3 GiB that takes no room on the disk; Node refuses to read one of more than 2 GiB as a whole, in its own words. */
export function hugeFileAt(path: string): void {
  closeSync(openSync(path, "w"));
  truncateSync(path, 3 * 2 ** 30);
}
