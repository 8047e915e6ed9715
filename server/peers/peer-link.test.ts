import assert from "node:assert/strict";
import { test } from "node:test";
import type { Logger } from "../../shared/runtime/logger.ts";
import { ThrottledLog } from "../../shared/runtime/throttled-log.ts";
import { peerLog } from "./peer-link.ts";

function world() {
  const written: unknown[] = [];
  const line = ({ peer }: { readonly peer?: unknown }): void => void written.push(peer);
  const log = { debug: () => {}, info: line, warn: line, error: line } as unknown as Logger;
  const throttled = new ThrottledLog(log);
  return { written, warn: (peer: string, message: string) => peerLog(throttled, peer, "10.0.0.2:1")("warn", message) };
}

test("a server that comes and goes all the time hides the lines of no other", () => {
  const { written, warn } = world();
  for (let times = 0; times < 500; times++) warn("srv-2", "peer link lost");
  warn("srv-3", "peer link lost");
  assert.deepEqual([written.length, written.at(-1)], [21, "srv-3"]);
});

test("servers that a forged directory names without end have a bounded number of lines", () => {
  const { written, warn } = world();
  for (let number = 0; number < 20_000; number++) warn(`srv-${number}`, "peer not reached");
  assert.ok(written.length <= 1_010, `${written.length} lines`);
});
