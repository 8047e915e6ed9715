/**
 * Writes figures into the pages that quote them: what was measured, from docs/figures.json, and the ports, from the
 * option tables. With --check only says which pages are stale.
 */
import { execFileSync } from "node:child_process";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { agentOptions } from "../agent/context/options.ts";
import { FIGURES_FILE } from "../e2e/bench/page.ts";
import { routerOptions } from "../router/options.ts";
import { serverOptions } from "../server/options/options.ts";
import { httpProxyOptions, socks5ProxyOptions } from "../sidecars/options.ts";
import { type Figures, quotable, withFigures } from "./figures.ts";

const ROOT = fileURLToPath(new URL("..", import.meta.url));
const isCheck = process.argv.includes("--check");
const figures = JSON.parse(readFileSync(FIGURES_FILE, "utf8")) as Figures;
const texts = quotable(figures).set("ports", ports());

for (const name of execFileSync("git", ["ls-files", "*.md"], { cwd: ROOT, encoding: "utf8" }).trim().split("\n")) {
  const written = readFileSync(join(ROOT, name), "utf8");
  const page = withFigures(written, texts, figures.comparison);
  if (page === written) continue;
  if (!isCheck) writeFileSync(join(ROOT, name), page);
  else {
    console.error(`${name} is stale: run \`npm run docs\`.`);
    process.exitCode = 1;
  }
}

function ports(): string {
  const server = serverOptions.options;
  const agent = agentOptions.options;
  const router = routerOptions.options;
  const clients = new Set([socks5ProxyOptions, httpProxyOptions].map(({ options }) => options.port.default));
  return [
    `server: ${server.serverPort.default} callers, ${server.agentPort.default} agents, ${server.healthPort.default} health, \
${server.adminPort.default} admin (loopback), with a directory ${server.peerPort.default} other servers`,
    `agent: ${agent.healthServerPort.default} health, ${agent.adminServerPort.default} admin (loopback)`,
    `router: ${router.port.default} TLS, ${router.healthPort.default} health, ${router.adminPort.default} admin (loopback)`,
    `socks5-proxy and http-proxy: ${[...clients].join(" and ")} clients (loopback), \
${socks5ProxyOptions.options.healthPort.default} and ${httpProxyOptions.options.healthPort.default} health`,
  ].join("; ");
}
