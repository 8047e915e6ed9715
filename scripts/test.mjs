/**
 * Runs the tests: `node scripts/test.mjs unit|e2e|all [names of files or options of node --test]`.
 * Node 20 has no globs for tests, so the list of files is made here.
 */
import { spawn } from "node:child_process";
import { readdirSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { bundlePackages } from "./bundled.mjs";
import { compile, remove } from "./compiled.mjs";

const ROOT = fileURLToPath(new URL("..", import.meta.url));
const END_OF_TESTS = new URL("end-of-tests.mjs", import.meta.url).href;

/**
 * Unit tests are short and wait for a third of their time. Scenarios and hostile tests measure times and need the machine
 * alone; the other end-to-end tests wait for processes most of the time, so two run at once.
 */
const SUITES = {
  unit: {
    folders: ["shared", "server", "agent", "router", "cli", "fuzz", "scripts"],
    concurrency: 3,
    timeoutMs: 120_000,
    compiled: true,
  },
  e2e: { folders: ["e2e"], concurrency: 2, alone: /^e2e\/(hostile|scenarios)\//, timeoutMs: 180_000, compiled: false },
};

const [name = "all", ...rest] = process.argv.slice(2);
const suites = name === "all" ? ["unit", "e2e"] : [name];
const options = rest.filter((argument) => argument.startsWith("-"));
const wanted = rest.filter((argument) => !argument.startsWith("-"));

if (suites.some((suite) => !Object.hasOwn(SUITES, suite))) {
  console.error(`There is no suite "${name}". Use: ${Object.keys(SUITES).join(", ")}, all.`);
  process.exit(2);
}
if (wanted.length > 0 && suites.every((suite) => filesOf(suite).length === 0)) {
  console.error(`No test file matches ${wanted.join(", ")}.`);
  process.exit(2);
}
let code = 0;
for (const suite of suites) code = Math.max(code, await runSuite(suite));
process.exitCode = code;

async function runSuite(suite) {
  const { concurrency, alone, timeoutMs, compiled } = SUITES[suite];
  const files = filesOf(suite);
  const limitsOf = (atOnce) => [`--test-concurrency=${atOnce}`, `--test-timeout=${timeoutMs}`];
  if (!compiled) {
    const measured = files.filter((file) => alone.test(file));
    const others = files.filter((file) => !alone.test(file));
    const code = await runNode(["--import", "tsx", ...limitsOf(concurrency)], others);
    return Math.max(code, await runNode(["--import", "tsx", ...limitsOf(1)], measured));
  }
  if (files.length === 0) return 0;
  const folder = compile(ROOT);
  if (folder === undefined) return 1;
  try {
    await bundlePackages(join(ROOT, folder));
    const built = files.map((file) => join(folder, file.replace(/\.ts$/, ".js")));
    return await runNode(["--enable-source-maps", ...limitsOf(concurrency)], built);
  } finally {
    remove(ROOT, folder);
  }
}

async function runNode(flags, files) {
  // Without a file, node would look for tests by itself and find those that tsx has to load.
  if (files.length === 0) return 0;
  const all = ["--import", END_OF_TESTS, "--test", "--test-reporter=spec", ...flags, ...options, ...files];
  const child = spawn(process.execPath, all, { cwd: ROOT, stdio: "inherit" });
  // Ctrl-C reaches the child from the terminal; a supervisor's SIGTERM reaches this process only.
  process.on("SIGINT", () => {});
  process.on("SIGTERM", () => child.kill("SIGTERM"));
  return new Promise((resolve) => child.on("exit", (status) => resolve(status ?? 1)));
}

function filesOf(suite) {
  const all = SUITES[suite].folders.flatMap((folder) => testFiles(folder)).sort();
  return wanted.length === 0 ? all : all.filter((file) => wanted.some((part) => file.includes(part)));
}

function testFiles(folder) {
  const entries = readdirSync(join(ROOT, folder), { withFileTypes: true, recursive: true });
  return entries
    .filter((entry) => entry.isFile() && entry.name.endsWith(".test.ts") && !entry.parentPath.includes("node_modules"))
    .map((entry) => join(entry.parentPath, entry.name).slice(ROOT.length));
}
