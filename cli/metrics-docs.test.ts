import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import { prepared } from "../agent/testing/agent.ts";
import { TestRouter } from "../router/testing/router.ts";
import { fetchText, pki, start } from "../server/testing/server.ts";
import { defaultsOf } from "../shared/config/options.ts";
import { createLogger } from "../shared/runtime/logger.ts";
import { ROOT } from "../shared/runtime/testing/project.ts";
import { socks5ProxyOptions } from "../sidecars/options.ts";
import type { Sidecar } from "../sidecars/sidecar.ts";
import { startSocks5Proxy } from "../sidecars/socks5-proxy.ts";

const PAGE = readFileSync(join(ROOT, "docs/metrics.md"), "utf8");

/** The metrics that a process shows on one of its ports. */
async function shownAt(port: number | undefined): Promise<string[]> {
  const { text } = await fetchText(port, "/metrics");
  return [...text.matchAll(/^# TYPE (\S+) /gm)].map(([, name = ""]) => name).sort();
}

/** The rows of a process' table: names, and what its last column says. */
function rowsOf(process: string): { readonly name: string; readonly last: string }[] {
  const table = PAGE.split(`<!-- ${process} -->\n`)[1]?.split("<!-- end -->")[0] ?? "";
  return [...table.matchAll(/^\| `(\w+)` .* \| ([^|]*) \|$/gm)].map(([, name = "", last = ""]) => ({ name, last }));
}

const PROM_CLIENT = /^(?:process|nodejs)_/;

/** Metrics that a process shows and its table lacks, or the other way round. */
function differences(shown: readonly string[], listed: readonly string[]): string[] {
  const ours = shown.filter((name) => !PROM_CLIENT.test(name));
  return [
    ...ours.filter((name) => !listed.includes(name)).map((name) => `${name} is not listed`),
    ...listed.filter((name) => !ours.includes(name)).map((name) => `${name} is not shown`),
  ];
}

async function startedSidecar(t: TestContext): Promise<Sidecar> {
  const [caCert = "", cert = "", key = ""] = ["ca.pem", "cert.pem", "key.pem"].map((name) => join(pki.folder, name));
  const ports = { port: 0, healthPort: 0, healthBindAddress: "127.0.0.1" };
  const options = { ...defaultsOf(socks5ProxyOptions), caCert, cert, key, ...ports };
  const log = createLogger({ level: "silent", format: "json", name: "sidecar" });
  const sidecar = await startSocks5Proxy(options, { log, listenEphemeral: true });
  t.after(() => sidecar.destroy(new Error("the test ends")));
  return sidecar;
}

test("docs/metrics.md lists each metric that a process shows, and no other", async (t) => {
  await using server = await start();
  const agent = await (await prepared(t)).start();
  await using router = await new TestRouter().start([]);
  const ports = {
    server: server.addresses.admin?.port,
    agent: agent.addresses.health?.port,
    router: router.router.addresses.admin?.port,
    sidecar: (await startedSidecar(t)).addresses.health?.port,
  };
  for (const [process, port] of Object.entries(ports)) {
    const shown = await shownAt(port);
    const listed = rowsOf(process).map(({ name }) => name);
    assert.deepEqual(differences(shown, listed), [], process);
    for (const name of shown.filter((one) => PROM_CLIENT.test(one))) assert.ok(PAGE.includes(`\`${name}\``), name);
  }
});

test("what the page says is left out where no names are shown is left out, and the rest is there", async () => {
  await using server = await start();
  await using router = await new TestRouter().start([]);
  for (const [process, port] of [
    ["server", server.addresses.health?.port],
    ["router", router.router.addresses.health?.port],
  ] as const) {
    const kept = rowsOf(process).filter(({ last }) => last !== "left out");
    assert.ok(kept.length < rowsOf(process).length);
    assert.deepEqual(
      differences(
        await shownAt(port),
        kept.map(({ name }) => name),
      ),
      [],
      process,
    );
  }
});

/** The chart's ServiceMonitor gives it to the samples of a fleet. */
const FLEET_LABEL = "culvert_fleet";

test("each expression on the page, and each name beside one of Konnectivity's, is of a metric that is shown", () => {
  const listed = ["server", "agent", "router", "sidecar"].flatMap((process) => rowsOf(process).map(({ name }) => name));
  const prose = PAGE.replaceAll(/<!-- \w+ -->\n[\s\S]*?<!-- end -->/g, "");
  const used = [...prose.matchAll(/\bculvert_\w+/g)].map(([name]) => name.replace(/_(?:bucket|count|sum)$/, ""));
  assert.ok(used.length > 30);
  assert.deepEqual(
    used.filter((name) => !listed.includes(name) && name !== FLEET_LABEL),
    [],
  );
  const aliases = [...PAGE.matchAll(/^\| `([SA])_(\w+).*?` \| the same name \|/gm)];
  assert.ok(aliases.length > 10);
  const sides: Readonly<Record<string, string>> = { S: "server", A: "agent" };
  for (const [, side = "", name] of aliases) {
    const alias = `konnectivity_network_proxy_${sides[side]}_${name}`;
    assert.ok(listed.includes(alias), alias);
  }
});
