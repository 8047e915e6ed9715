import assert from "node:assert/strict";
import { type ChildProcess, spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { readFileSync, writeFileSync } from "node:fs";
import { connect } from "node:net";
import { join } from "node:path";
import { test } from "node:test";
import type { ServerOptions } from "../../server/options/options.ts";
import { ROOT } from "../../shared/runtime/testing/project.ts";
import { echoes, SeparateClusters } from "../harness/separate-clusters.ts";
import { freePort } from "../harness/targets/absent.ts";
import { TempDir } from "../harness/temp.ts";
import { waitFor, within } from "../harness/wait.ts";

const PAGE = readFileSync(join(ROOT, "docs/load-balancers.md"), "utf8");
const PROXIED = {
  agentProxyProtocol: "required",
  serverProxyProtocol: "required",
  proxyProtocolTrustedCidrs: ["127.0.0.0/8"],
} as const satisfies Partial<ServerOptions>;

/** Why the real binary cannot be used here; on CI that is a failure. */
function missing(binary: "haproxy" | "nginx"): string | false {
  if (spawnSync(binary, ["-v"]).status === 0) return false;
  const reason = `there is no ${binary}`;
  if (process.env["CI"] === "true") throw new Error(`CI may not skip this: ${reason}`);
  return reason;
}

/** The configurations of the page in one language, as they stand there. */
function configurations(language: "haproxy" | "nginx"): string[] {
  return [...PAGE.matchAll(new RegExp(`^\`\`\`${language}\n(.*?)^\`\`\``, "gms"))].map(([, text = ""]) => text);
}

/** With the addresses of this test in place of the page's; each has to be there. */
function located(text: string, addresses: Readonly<Record<string, string>>): string {
  return Object.entries(addresses).reduce((before, [from, to]) => {
    assert.ok(before.includes(from), `the page says nothing of ${from}`);
    return before.replaceAll(from, to);
  }, text);
}

/** A balancer with this configuration, from when its ports answer to its end. */
class Balancer implements AsyncDisposable {
  readonly #dir = new TempDir();
  readonly #child: ChildProcess;
  readonly #exited: Promise<unknown>;
  #output = "";

  private constructor(binary: "haproxy" | "nginx", text: string) {
    const file = this.#dir.file("config");
    writeFileSync(file, text);
    const own = `daemon off; pid ${this.#dir.file("pid")}; error_log stderr;`;
    const args = binary === "haproxy" ? ["-db", "-f", file] : ["-c", file, "-e", "stderr", "-g", own];
    this.#child = spawn(binary, args, { stdio: ["ignore", "pipe", "pipe"] });
    this.#exited = once(this.#child, "exit");
    for (const stream of [this.#child.stdout, this.#child.stderr]) {
      stream?.on("data", (chunk: Buffer) => {
        this.#output += String(chunk);
      });
    }
  }

  static async start(binary: "haproxy" | "nginx", text: string, ports: readonly number[]): Promise<Balancer> {
    const balancer = new Balancer(binary, text);
    try {
      for (const port of ports) await waitFor(() => balancer.#answers(port), { what: `${binary} on port ${port}` });
      return balancer;
    } catch (error) {
      await balancer[Symbol.asyncDispose]();
      throw new Error(`${(error as Error).message}\n${balancer.#output}`, { cause: error });
    }
  }

  async #answers(port: number): Promise<boolean> {
    const socket = connect({ host: "127.0.0.1", port });
    try {
      await once(socket, "connect");
      return true;
    } finally {
      socket.destroy();
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#child.kill("SIGTERM");
    await within(this.#exited, 5_000, "the balancer to end").catch(() => this.#child.kill("SIGKILL"));
    this.#dir[Symbol.dispose]();
  }
}

/** Where the page's servers are, of two clusters. */
function backends(clusters: SeparateClusters): Record<string, string> {
  return {
    "10.0.0.11:8091": clusters.address("blue", "agents"),
    "10.0.0.11:8090": clusters.address("blue", "callers"),
    "10.0.0.21:8091": clusters.address("green", "agents"),
    "10.0.0.21:8090": clusters.address("green", "callers"),
  };
}

async function comesThroughByName(clusters: SeparateClusters, port: number): Promise<void> {
  await clusters.startAgents(port);
  for (const name of ["blue", "green"] as const) {
    await using connection = await clusters.connect(name, port);
    await echoes(connection, `hello from ${name}`);
  }
}

test("haproxy passes TLS through with PROXY version 2", { skip: missing("haproxy") }, async () => {
  await using clusters = await SeparateClusters.start(["blue"], PROXIED);
  const [agents, callers] = [await freePort(), await freePort()];
  const text = located(configurations("haproxy")[0] ?? "", {
    ":443": `127.0.0.1:${agents}`,
    ":8443": `127.0.0.1:${callers}`,
    "10.0.0.11:8091": clusters.address("blue", "agents"),
    "10.0.0.11:8090": clusters.address("blue", "callers"),
  });
  await using _balancer = await Balancer.start("haproxy", text, [agents, callers]);
  await clusters.startAgents(agents);
  await using connection = await clusters.connect("blue", callers);
  await echoes(connection, "through haproxy");
  // The header was not only tolerated: without one nobody comes in.
  const past = Number(clusters.address("blue", "callers").split(":")[1]);
  await assert.rejects(clusters.connect("blue", past));
});

test("haproxy passes TLS through by name", { skip: missing("haproxy") }, async () => {
  await using clusters = await SeparateClusters.start(["blue", "green"]);
  const port = await freePort();
  const text = located(configurations("haproxy")[1] ?? "", { ":443": `127.0.0.1:${port}`, ...backends(clusters) });
  await using _balancer = await Balancer.start("haproxy", text, [port]);
  await comesThroughByName(clusters, port);
});

test("nginx passes TLS through by name, with PROXY version 1", { skip: missing("nginx") }, async () => {
  await using clusters = await SeparateClusters.start(["blue", "green"], PROXIED);
  const port = await freePort();
  const text = located(configurations("nginx")[0] ?? "", {
    "listen 443": `listen 127.0.0.1:${port}`,
    ...backends(clusters),
  });
  await using _balancer = await Balancer.start("nginx", text, [port]);
  await comesThroughByName(clusters, port);
});
