import assert from "node:assert/strict";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";
import { AgentMetrics } from "../agent/context/metrics.ts";
import { agentOptions } from "../agent/context/options.ts";
import { ServerMetrics } from "../server/metrics/server-metrics.ts";
import { serverOptions } from "../server/options/options.ts";
import { ClusterTunnels } from "../server/tunnels/cluster-tunnels.ts";
import { type FakeAgent, fakeAgent } from "../server/tunnels/testing/fake-agent.ts";
import { parseIdentifiers } from "../shared/address/agent-identifiers.ts";
import type { OptionTable } from "../shared/config/options.ts";
import { readOptions } from "../shared/config/read-options.ts";
import { ROOT } from "../shared/runtime/testing/project.ts";
import { ARGUMENT_LISTS, type ArgumentList, FLAGS_OF_0_36 } from "./testing/konnectivity.ts";

const dir = mkdtempSync(join(tmpdir(), "culvert-konnectivity-"));
after(() => rmSync(dir, { recursive: true, force: true }));
const file = join(dir, "some.pem");
writeFileSync(file, "");

function readList({ command }: ArgumentList, argv: readonly string[]) {
  return command === "server"
    ? readOptions(serverOptions, { argv, env: {} })
    : readOptions(agentOptions, { argv, env: {} });
}

for (const list of ARGUMENT_LISTS) {
  test(`the arguments of ${list.installer} start culvert unchanged, with one line of warning at most`, async () => {
    const { problems, warnings } = await readList(list, list.arguments(file));
    assert.deepEqual(problems, []);
    assert.ok(warnings.length <= 1, warnings.join("\n"));
  });
}

/** Which of an installer's agents Konnectivity asks for a target: any of those that are named, or nobody. */
const ROUTES: readonly {
  readonly installer: string;
  readonly server: string;
  /** The argument lists of its agents. */
  readonly agents: Readonly<Record<string, string>>;
  readonly targets: Readonly<Record<string, readonly string[]>>;
}[] = [
  {
    installer: "HyperShift",
    server: "HyperShift, server",
    agents: {
      "control-plane": "HyperShift, agent of the control plane",
      "node-1": "HyperShift, agent on the nodes",
      "node-2": "HyperShift, agent on the nodes",
    },
    targets: {
      "172.30.5.1": ["control-plane"],
      "172.30.5.3": ["control-plane"],
      "172.30.5.4": ["node-1", "node-2"],
      "10.0.0.21": ["node-1", "node-2"],
      "webhook.apps.svc": ["node-1", "node-2"],
    },
  },
  {
    installer: "HyperShift, whose control plane's agent alone is there",
    server: "HyperShift, server",
    agents: { "control-plane": "HyperShift, agent of the control plane" },
    targets: { "172.30.5.1": ["control-plane"], "10.0.0.21": [] },
  },
  {
    installer: "KKP",
    server: "KKP, server",
    agents: { "node-1": "KKP, agent", "node-2": "KKP, agent" },
    targets: { "172.30.5.1": ["node-1", "node-2"], "node-1.example": ["node-1", "node-2"] },
  },
  {
    installer: "k0s",
    server: "k0s, server",
    agents: { "10.0.0.21": "k0s, agent", other: "KKP, agent" },
    targets: { "10.0.0.21": ["10.0.0.21"], "10.0.0.22": ["10.0.0.21", "other"] },
  },
  {
    installer: "OCM",
    server: "OCM, server",
    agents: { blue: "OCM, agent of blue", red: "OCM, agent of red" },
    targets: { blue: ["blue"], red: ["red"], green: [], "10.0.0.1": [] },
  },
];

function listOf(installer: string): ArgumentList {
  return ARGUMENT_LISTS.find((list) => list.installer === installer) ?? assert.fail(installer);
}

for (const { installer, server, agents, targets } of ROUTES) {
  test(`the arguments of ${installer} choose the agents that Konnectivity would`, async () => {
    const cluster = new ClusterTunnels("default", { serverId: "srv", maxAgents: 10, drainTimeoutMs: 50 });
    const { values } = await readOptions(serverOptions, { argv: listOf(server).arguments(file), env: {} });
    cluster.rules = { strategies: values.proxyStrategies, strict: values.strictIdentifiers, claims: undefined };
    const all: FakeAgent[] = [];
    for (const [agentId, list] of Object.entries(agents)) {
      const read = await readOptions(agentOptions, { argv: listOf(list).arguments(file), env: {} });
      const agent = fakeAgent({ agentId, identifiers: parseIdentifiers(read.values.agentIdentifiers) });
      cluster.places.reserve({ agentId, instance: "1", identity: "CN=agent" }).join(agent.tunnel);
      all.push(agent);
    }
    for (const [host, expected] of Object.entries(targets)) {
      const candidates = cluster.candidates({ host, port: 443 });
      const first = candidates.pick();
      const second = candidates.pick(first);
      const asked = [first, second].flatMap((tunnel) => tunnel?.agent.agentId ?? []);
      // The second is of the next strategy where the first has one agent alone: Konnectivity does not try again.
      assert.deepEqual(asked.slice(0, expected.length).sort(), [...expected].sort(), host);
      if (expected.length === 0) assert.deepEqual(asked, [], host);
    }
    for (const agent of all) agent.cut();
  });
}

test("the line of warning gives each reason once, behind the flags that it is for", async () => {
  const [server] = ARGUMENT_LISTS;
  assert.ok(server);
  const { warnings } = await readList(server, [...server.arguments(file), "--kubeconfig-qps=5"]);
  assert.deepEqual(warnings, [
    "Accepted without effect: --logtostderr, --log-file-max-size (klog's: use --log-level and --log-format); " +
      "--mode (callers may speak gRPC and HTTP CONNECT, whatever it says); --kubeconfig-qps (answers about tokens are kept for a minute).",
  ]);
});

const page = readFileSync(join(ROOT, "docs/konnectivity.md"), "utf8");

/** First and second cell of each row below a heading of the page. */
function rowsOf(heading: string): (readonly [name: string, word: string])[] {
  const from = page.indexOf(`### ${heading}\n`);
  assert.ok(from >= 0, heading);
  const [text = ""] = page.slice(from + 1).split("\n#", 1);
  return [...text.matchAll(/^\| `(?:--)?([a-z\d_-]+)` \| ([^|]*) \|/gm)].map(([, name = "", word = ""]) => [
    name,
    word,
  ]);
}

/**
 * The word that the page has to have for each flag of Konnectivity, by the option table; its agent lacks some of ours.
 */
function wordsOf({ options, foreign }: OptionTable, flags: readonly string[]): Map<string, string> {
  const names = Object.values(options).map(({ konnectivity }) => konnectivity?.slice(2) ?? "");
  const words = new Map(names.filter((name) => flags.includes(name)).map((name) => [name, "works"]));
  for (const [name, { effectOf }] of Object.entries(foreign)) {
    const effect = effectOf("\0");
    words.set(name, effect !== "harmless" && "refused" in effect ? "by value" : "no effect");
  }
  return words;
}

for (const table of [serverOptions, agentOptions] as unknown as readonly OptionTable[]) {
  const command = table.command as "server" | "agent";
  test(`docs/konnectivity.md says of every flag of the ${command} what its option table does, and of no other`, () => {
    const flags = FLAGS_OF_0_36[command].split(" ");
    const words = wordsOf(table, flags);
    const rows = [...rowsOf(`Flags of the ${command}`), ...rowsOf("Flags of both")];
    assert.deepEqual(new Map([...rows].sort()), new Map([...words].sort()));
    assert.equal(rows.length, words.size, "a flag has two rows");
    assert.deepEqual(
      flags.filter((name) => !words.has(name)),
      [],
    );
  });
}

for (const [side, { registry }] of [
  ["server", new ServerMetrics()],
  ["agent", new AgentMetrics()],
] as const) {
  test(`docs/konnectivity.md calls by the same name what the ${side} exports of Konnectivity's metrics, and nothing else`, () => {
    const prefix = `konnectivity_network_proxy_${side}_`;
    const exported = registry.getMetricsAsArray().map(({ name }) => name);
    const rows = rowsOf(`Metrics of the ${side}`);
    const same = rows.filter(([, words]) => words.startsWith("same name")).map(([name]) => name);
    const others = rows.filter(([, words]) => !words.startsWith("same name")).map(([name]) => name);
    assert.ok(rows.length > 10 && rows.every(([name]) => name.startsWith(prefix)));
    assert.deepEqual(
      same.filter((name) => !exported.includes(name)),
      [],
    );
    assert.deepEqual(
      others.filter((name) => exported.includes(name)),
      [],
    );
  });
}
