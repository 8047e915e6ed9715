import { spawn } from "node:child_process";
import { readdirSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { bundlePackages } from "./bundled.mjs";
import { compile, remove } from "./compiled.mjs";

const ROOT = fileURLToPath(new URL("..", import.meta.url));
const END_OF_TESTS = new URL("end-of-tests.mjs", import.meta.url).href;

/**
 * Unit tests are short and wait for a third of their time, so three files run at once. End-to-end tests run two at
 * once, since they wait for processes most of the time. Tests that measure times or memory need the machine to
 * themselves: they are in e2e/hostile/ and e2e/measured/.
 */
export const SUITES = {
  unit: {
    folders: ["shared", "server", "agent", "router", "sidecars", "cli", "ui", "fuzz", "scripts"],
    concurrency: 3,
    alone: /^$/,
    timeoutMs: 120_000,
  },
  // Whole matrices take minutes in one file.
  e2e: {
    folders: ["e2e"],
    concurrency: 2,
    alone: /^e2e\/(hostile|measured)\//,
    timeoutMs: process.env["CULVERT_FULL"] === "1" ? 1_800_000 : 300_000,
  },
};

/** The scenarios of `npm test`: the main paths, which need nothing but Node.js and take less than 45 s together. */
const FIRST = [
  ...["byte-path", "clusters-isolation", "connect-path", "early-bytes", "end-and-reset", "faults", "half-close"],
  ...["inner-tls", "outcomes", "policy", "renewal", "reset", "several-servers"],
].map((name) => `e2e/scenarios/${name}.test.ts`);

/** End-to-end tests that start the program as a process. */
const OF_PROCESSES =
  /^e2e\/(?:(?:fleet|hostile|measured|processes|proxies)\/|(?:interop\/(?:installers|konnectivity-limits)|scenarios\/(?:clusters-reload|faults|strict-upgrade))\.)/;

/** Files that do not run on Bun, and why; single tests of other files say it by `nodeOnly`. */
const NODE_ONLY = {
  "e2e/hostile/http2.test.ts": "Bun's HTTP/2 ends no session for a flood (docs/versions.md)",
  "e2e/measured/memory.test.ts": "a reader that has stopped holds what Bun reads at once (docs/versions.md)",
  "e2e/processes/build.test.ts": "the modules that Node.js has loaded are counted",
  "e2e/processes/package.test.ts": "it starts no process of the program that serves anybody",
};

/** The part that CI runs on Bun, in at most 4 minutes: the start, the byte path, loss, reload and inner TLS. */
const ON_BUN_IN_CI = [
  ...["byte-path", "kill", "reload", "resets", "session-resumption", "startup", "status", "unix-socket"].map(
    (name) => `e2e/processes/${name}.test.ts`,
  ),
  ...["inspection", "negotiate"].map((name) => `e2e/proxies/${name}.test.ts`),
];

const { CI, CULVERT_FULL } = process.env;

/** The files of `npm run test:bun`. */
function filesOnBun() {
  if (CI === "true" && CULVERT_FULL !== "1") return ON_BUN_IN_CI;
  return filesOf("e2e", []).filter((file) => OF_PROCESSES.test(file) && !Object.hasOwn(NODE_ONLY, file));
}

/**
 * The tests of `npm test`, and the other end-to-end tests for `npm run test:all`. Tests of the image are in neither:
 * `npm run test:nodes` runs them with the image's own Node.js.
 */
export const PARTS = {
  first: [
    { suite: "unit", files: filesOf("unit", []) },
    { suite: "e2e", files: FIRST },
  ],
  rest: [
    {
      suite: "e2e",
      files: filesOf("e2e", []).filter((file) => !FIRST.includes(file) && !file.startsWith("e2e/image/")),
    },
  ],
  bun: [{ suite: "e2e", files: filesOnBun() }],
};

/** The files of a suite that have one of the words in their path; all of them without words. */
export function filesOf(suite, words) {
  const all = SUITES[suite].folders.flatMap((folder) => testFiles(folder)).sort();
  return words.length === 0 ? all : all.filter((file) => words.some((word) => file.includes(word)));
}

/**
 * Compiles the sources and runs files of suites, each a `{ suite, files, onlyOn? }`, with each of the `nodes` (paths
 * of Node.js) in turn, or with the one of `onlyOn`. `options` are those of `node --test`. Returns the exit code, which
 * is 0 when all tests have passed.
 */
export async function runSuites(runs, { nodes = [process.execPath], options = [] } = {}) {
  const folder = compile(ROOT);
  if (folder === undefined) return 1;
  try {
    await bundlePackages(join(ROOT, folder));
    let code = 0;
    for (const node of nodes) {
      if (nodes.length > 1) console.log(`# ${node}`);
      for (const { suite, files, onlyOn = node } of runs) {
        if (onlyOn !== node) continue;
        const { concurrency, alone, timeoutMs } = SUITES[suite];
        const run = async (atOnce, some) => {
          const flags = [`--test-concurrency=${atOnce}`, `--test-timeout=${timeoutMs}`, ...options];
          const built = some.map((file) => join(folder, file.replace(/\.ts$/, ".js")));
          code = Math.max(code, await runNode(node, flags, built));
        };
        await run(
          concurrency,
          files.filter((file) => !alone.test(file)),
        );
        await run(
          1,
          files.filter((file) => alone.test(file)),
        );
      }
    }
    return code;
  } finally {
    remove(ROOT, folder);
  }
}

async function runNode(node, flags, files) {
  // Without a file, node would look for tests by itself.
  if (files.length === 0) return 0;
  const all = ["--enable-source-maps", "--import", END_OF_TESTS, "--test", "--test-reporter=spec", ...flags, ...files];
  const child = spawn(node, all, { cwd: ROOT, stdio: "inherit" });
  // Ctrl-C reaches the child from the terminal; a supervisor's SIGTERM reaches this process only.
  process.on("SIGINT", () => {});
  process.on("SIGTERM", () => child.kill("SIGTERM"));
  return new Promise((resolve) => child.on("exit", (status) => resolve(status ?? 1)));
}

function testFiles(folder) {
  const entries = readdirSync(join(ROOT, folder), { withFileTypes: true, recursive: true });
  return entries
    .filter((entry) => entry.isFile() && entry.name.endsWith(".test.ts") && !entry.parentPath.includes("node_modules"))
    .map((entry) => join(entry.parentPath, entry.name).slice(ROOT.length));
}
