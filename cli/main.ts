#!/usr/bin/env node
import { tooFewFilesToStart } from "../shared/limits/descriptor-shortage.ts";

// The kernel ignores signals without a listener for process 1, which is the main process of a container: a short
// command would only end at SIGKILL. Commands that have listeners of their own handle the signals themselves.
if (process.pid === 1) {
  for (const [signal, code] of [
    ["SIGTERM", 143],
    ["SIGINT", 130],
  ] as const) {
    process.on(signal, () => {
      if (process.listenerCount(signal) === 1) process.exit(code);
    });
  }
}

// An older Node.js fails while modules are loaded, with a stack that says nothing of its version.
const [major = 0, minor = 0] = process.versions.node.split(".").map(Number);
if (major < 20 || (major === 20 && minor < 19)) {
  fail(
    `Node.js ${process.versions.node} is too old: culvert needs 20.19 or newer. Install it, and run culvert with it`,
  );
} else {
  // Node opens many modules at a time. With a low limit of open files that fails before any code of ours runs.
  try {
    await import("./command-line.ts");
  } catch (error) {
    const sentence = tooFewFilesToStart(error);
    if (sentence === undefined) throw error;
    fail(sentence);
  }
}

function fail(sentence: string): void {
  process.stderr.write(`culvert: ${sentence}\n`);
  process.exitCode = 1;
}
