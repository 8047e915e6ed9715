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

// Node opens many modules at a time. With a low limit of open files that fails before any code of ours runs.
try {
  await import("./command-line.ts");
} catch (error) {
  const sentence = tooFewFilesToStart(error);
  if (sentence === undefined) throw error;
  process.stderr.write(`culvert: ${sentence}\n`);
  process.exitCode = 1;
}
