import assert from "node:assert/strict";
import { writeFile } from "node:fs/promises";
import { createServer as createHttp } from "node:http";
import { createServer as createHttps } from "node:https";
import type { AddressInfo } from "node:net";
import { type TestContext, test } from "node:test";
import { selfSigned } from "../harness/certificate.ts";
import { HttpPortWorld } from "../harness/http-port.ts";
import { configurations, located } from "../harness/page-configuration.ts";
import { Program } from "../harness/program.ts";
import { startHttp } from "../harness/sidecar.ts";
import { freePort } from "../harness/targets/absent.ts";
import { listenOnLoopback } from "../harness/targets/tcp.ts";
import { TempDir } from "../harness/temp.ts";
import { startWorld } from "../harness/world.ts";
import { missingProgram } from "../proxies/harness/missing.ts";

const skip = missingProgram("prometheus");
const [OF_SIDECAR = "", BY_TOKEN = "", BY_CERTIFICATE = ""] = configurations("sidecars.md", "yaml");

/** The targets of the page, here: one of http, and one of https with its CA. */
async function targets(t: TestContext, folder: TempDir): Promise<Record<"10.0.0.12:9100" | "10.0.0.12:10250", string>> {
  const certificate = await selfSigned();
  await writeFile(folder.file("kubelet-ca.crt"), certificate.cert);
  const servers = [createHttp(), createHttps(certificate)];
  const [http, https] = await Promise.all(
    servers.map(async (server) => {
      server.on("request", (_asked, answer) => answer.end("answer 42\n"));
      await listenOnLoopback(server);
      t.after(() => server.close());
      return `127.0.0.1:${(server.address() as AddressInfo).port}`;
    }),
  );
  return { "10.0.0.12:9100": http ?? "", "10.0.0.12:10250": https ?? "" };
}

interface ScrapedTarget {
  readonly labels: { readonly job: string };
  readonly health: "up" | "down" | "unknown";
  readonly lastError: string;
}

/** Debian's Prometheus with this configuration, which scrapes often. */
class Prometheus extends Program {
  readonly #port: number;

  constructor(folder: TempDir, port: number) {
    super("prometheus", [
      ...["prometheus", `--config.file=${folder.file("prometheus.yml")}`, `--web.listen-address=127.0.0.1:${port}`],
      `--storage.tsdb.path=${folder.file("tsdb")}`,
    ]);
    this.#port = port;
  }

  static async start(folder: TempDir, configuration: string): Promise<Prometheus> {
    const often = "global: {scrape_interval: 500ms, scrape_timeout: 500ms}\n";
    await writeFile(folder.file("prometheus.yml"), often + configuration);
    return new Prometheus(folder, await freePort());
  }

  /** Resolves when there is such a target for each job. */
  async sees(jobs: Readonly<Record<string, (target: ScrapedTarget) => boolean>>, what: string): Promise<void> {
    const all = async () => {
      const answer = await fetch(`http://127.0.0.1:${this.#port}/api/v1/targets`).catch(() => undefined);
      if (answer?.ok !== true) return false;
      const { data } = (await answer.json()) as { data: { activeTargets: ScrapedTarget[] } };
      return Object.entries(jobs).every(([job, isSo]) =>
        data.activeTargets.some((one) => one.labels.job === job && isSo(one)),
      );
    };
    await this.waitUntil(all, 60_000, what, 200);
  }

  /** Each job's target is up, and what it says has arrived. */
  async scrapes(...jobs: string[]): Promise<void> {
    await this.sees(
      Object.fromEntries(jobs.map((job) => [job, ({ health }) => health === "up"])),
      "targets that are up",
    );
    const answer = await fetch(`http://127.0.0.1:${this.#port}/api/v1/query?query=answer`);
    const { data } = (await answer.json()) as {
      data: { result: { metric: { job: string }; value: [number, string] }[] };
    };
    const found = data.result.map(({ metric, value }) => [metric.job, value[1]]).sort();
    assert.deepEqual(found, jobs.map((job) => [job, "42"]).sort());
  }
}

const hasError = (pattern: RegExp) => (target: ScrapedTarget) =>
  target.health === "down" && pattern.test(target.lastError);

test("Prometheus scrapes http and https targets through the sidecar, and tells why it cannot", { skip }, async (t) => {
  using folder = new TempDir();
  await using world = await startWorld({ server: { agentWaitMs: 20 } });
  await using proxy = await startHttp(world);
  const addresses = { "127.0.0.1:8090": proxy.address, ...(await targets(t, folder)) };
  await using prometheus = await Prometheus.start(folder, located(OF_SIDECAR, addresses));
  await prometheus.scrapes("nodes", "kubelets");
  for (const agent of world.agents) agent.destroy(new Error("it is to be away"));
  const errors = { nodes: hasError(/^server returned HTTP status 503 .*no agent/), kubelets: hasError(/no agent/) };
  await prometheus.sees(errors, "the sentence of the server");
});

test("Prometheus scrapes http and https targets straight through the server by a token", { skip }, async (t) => {
  using folder = new TempDir();
  await using world = await HttpPortWorld.start();
  const own = { "127.0.0.1:8101": `127.0.0.1:${world.port}`, TOKEN: await world.token() };
  await using prometheus = await Prometheus.start(folder, located(BY_TOKEN, { ...own, ...(await targets(t, folder)) }));
  await prometheus.scrapes("nodes", "kubelets");
  world.stopAgent();
  const errors = { nodes: hasError(/^server returned HTTP status 503 .*no agent/), kubelets: hasError(/no agent/) };
  await prometheus.sees(errors, "the sentence of the server");
});

test("Prometheus scrapes an http target straight through the server over TLS by a certificate", { skip }, async (t) => {
  using folder = new TempDir();
  await using world = await HttpPortWorld.start({ server: { httpBindAddress: "0.0.0.0" } });
  const blue = world.folder.get("blue");
  const { cert, key } = await blue.callerPair;
  for (const [name, text] of Object.entries({ "server-ca.crt": blue.ca, "client.crt": cert, "client.key": key })) {
    await writeFile(folder.file(name), text);
  }
  const { "10.0.0.12:9100": http } = await targets(t, folder);
  // The name is in no DNS here.
  const name = { "ca_file:": `server_name: ${blue.sni}\n      ca_file:` };
  const addresses = { "blue.example:8101": `127.0.0.1:${world.port}`, "10.0.0.12:9100": http, ...name };
  await using prometheus = await Prometheus.start(folder, located(BY_CERTIFICATE, addresses));
  await prometheus.scrapes("nodes");
});
