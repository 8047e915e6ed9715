#!/usr/bin/env node
import { tooFewFilesToStart } from "../shared/process/out-of-files.ts";

// Modules are read many at a time, and a process that may have few files open fails at that, before anything of ours runs.
try {
  await import("./command-line.ts");
} catch (error) {
  const sentence = tooFewFilesToStart(error);
  if (sentence === undefined) throw error;
  process.stderr.write(`culvert: ${sentence}\n`);
  process.exitCode = 1;
}
