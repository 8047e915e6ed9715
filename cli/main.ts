#!/usr/bin/env node
import { tooFewFilesToStart } from "../shared/limits/file-descriptors.ts";

// For process 1, as in a container, the kernel drops signals that have no listener: a short command would end at SIGKILL
// only. Commands with listeners of their own are left to them.
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

// Modules are read many at a time, and a process that may have few files open fails at that, before anything of ours runs.
try {
  await import("./command-line.ts");
} catch (error) {
  const sentence = tooFewFilesToStart(error);
  if (sentence === undefined) throw error;
  process.stderr.write(`culvert: ${sentence}\n`);
  process.exitCode = 1;
}
