#!/usr/bin/env node
import { outOfFiles } from "../shared/process/out-of-files.ts";

// Modules are read many at a time, and a process that may have few files open fails at that, before anything of ours runs.
try {
  await import("./command-line.ts");
} catch (error) {
  const sentence = outOfFiles(error);
  if (sentence === undefined) throw error;
  process.stderr.write(`culvert: ${sentence}\n`);
  process.exitCode = 1;
}
