/** Compiles the sources as unit tests are compiled and runs the fuzzer on them: `node scripts/fuzz.mjs [options]`. */
import { spawn } from "node:child_process";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { compile, remove } from "./compiled.mjs";

const ROOT = fileURLToPath(new URL("..", import.meta.url));

const folder = compile(ROOT);
if (folder === undefined) process.exit(1);
const main = join(folder, "fuzz", "main.js");
const child = spawn(process.execPath, ["--enable-source-maps", main, ...process.argv.slice(2)], {
  cwd: ROOT,
  stdio: "inherit",
});
// Ctrl-C reaches the child from the terminal; a supervisor's SIGTERM reaches this process only.
process.on("SIGINT", () => {});
process.on("SIGTERM", () => child.kill("SIGTERM"));
child.on("exit", (status) => {
  remove(ROOT, folder);
  process.exitCode = status ?? 1;
});
