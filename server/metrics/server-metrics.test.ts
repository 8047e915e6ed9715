import assert from "node:assert/strict";
import { test } from "node:test";
import type { AgentIdentifiers } from "../../shared/address/agent-identifiers.ts";
import { STRATEGIES } from "../clusters/routing-rules.ts";
import { ClusterFigures } from "./cluster-figures.ts";
import type { LiveCluster, LiveTunnel } from "./live-metrics.ts";
import { ServerMetrics } from "./server-metrics.ts";

async function lines(metrics: ServerMetrics): Promise<string[]> {
  return (await metrics.registry.metrics()).split("\n");
}

function has(all: readonly string[], ...wanted: readonly string[]): void {
  for (const line of wanted) assert.ok(all.includes(line), `${line} is missing from\n${all.join("\n")}`);
}

const K = "konnectivity_network_proxy_server";

/** A cluster with these tunnels. */
function clusterOf(name: string, ...tunnels: readonly LiveTunnel[]) {
  const counts = { openConnects: 0, establishedConnects: 0, pendingConnects: 0 };
  const closedBecause: string | undefined = undefined;
  return { name, ...counts, closedBecause, rules: { strategies: STRATEGIES.slice(0, 3) }, tunnels: () => tunnels };
}

function tunnelOf(
  special: Partial<LiveTunnel> & { readonly probe?: boolean; readonly identifiers?: AgentIdentifiers } = {},
): LiveTunnel {
  const { probe = false, identifiers = {}, ...rest } = special;
  const none = { draining: probe, suspended: false, streamCount: 0, bufferedBytes: 0, resetForMemory: 0 };
  return { agent: { probe, identifiers }, protocol: "culvert", standsStill: false, ...none, ...rest };
}

test("a connection is counted from CONNECT to its end, under our name and Konnectivity's", async () => {
  const metrics = new ServerMetrics({ processMetrics: false });
  const blue = clusterOf("blue");
  metrics.live.watch(() => [blue]);
  metrics.tunnelOpened("blue");
  metrics.connectionOpened(blue);
  metrics.pendingOpens(1);
  blue.pendingConnects = 1;
  has(
    await lines(metrics),
    'culvert_server_pending_opens{cluster="blue"} 1',
    'culvert_server_connections{cluster="blue"} 1',
    `${K}_pending_backend_dials 1`,
    `${K}_http_connections 1`,
  );
  metrics.pendingOpens(-1);
  metrics.connectionEstablished(blue, 20);
  has(
    await lines(metrics),
    'culvert_server_established_connections{cluster="blue"} 1',
    `${K}_established_connections 1`,
    `${K}_pending_backend_dials 0`,
    `${K}_ready_backend_connections 1`,
    `${K}_ready_backends{proxy_strategy="default"} 1`,
    `${K}_grpc_connections{service_method="Connect"} 1`,
    `${K}_dial_duration_seconds_bucket{le="0.025"} 1`,
    'culvert_server_dial_duration_seconds_sum{outcome="ok"} 0.02',
  );
  metrics.connectionFinished({ outcome: "ok", cluster: blue, bytesUp: 10, bytesDown: 20, durationMs: 1_500 });
  metrics.tunnelClosed("blue", "lost");
  has(
    await lines(metrics),
    'culvert_server_connections{cluster="blue"} 0',
    'culvert_server_established_connections{cluster="blue"} 0',
    'culvert_server_connections_total{cluster="blue",outcome="ok"} 1',
    'culvert_server_bytes_total{cluster="blue",direction="down"} 20',
    "culvert_server_connection_duration_seconds_sum 1.5",
    `${K}_ready_backend_connections 0`,
    'culvert_server_tunnels_closed_total{cluster="blue",reason="lost"} 1',
  );
});

test("an agent whose link is suspended holds its tunnel, and is none of Konnectivity's ready backends", async () => {
  const metrics = new ServerMetrics({ processMetrics: false });
  metrics.tunnelOpened("blue");
  metrics.tunnelOpened("green");
  const links = { carried: 1, suspended: 1, replayBytes: 0 };
  metrics.links.watch(() => links);
  metrics.live.watch(() => [clusterOf("blue", tunnelOf({ suspended: true })), clusterOf("green", tunnelOf())]);
  has(
    await lines(metrics),
    'culvert_server_tunnels{cluster="blue"} 1',
    'culvert_server_agents{cluster="blue"} 0',
    'culvert_server_agents{cluster="green"} 1',
    `${K}_ready_backend_connections 1`,
    `${K}_ready_backends{proxy_strategy="default"} 1`,
  );
  Object.assign(links, { carried: 2, suspended: 0 });
  has(await lines(metrics), `${K}_ready_backend_connections 2`, `${K}_ready_backends{proxy_strategy="default"} 2`);
});

test("agents of Konnectivity are counted, and those of them that take no packets", async () => {
  const metrics = new ServerMetrics({ processMetrics: false });
  const stock = tunnelOf({ protocol: "konnectivity" });
  metrics.live.watch(() => [
    clusterOf("blue", tunnelOf(), stock, tunnelOf({ protocol: "konnectivity", standsStill: true })),
  ]);
  has(
    await lines(metrics),
    'culvert_server_konnectivity_agents{cluster="blue"} 2',
    'culvert_server_agents_standing_still{cluster="blue"} 1',
  );
});

test("Konnectivity's ready backends are told apart by the strategies that may choose them", async () => {
  const metrics = new ServerMetrics({ processMetrics: false });
  const tunnels = [
    tunnelOf({ identifiers: { ipv4: ["10.0.0.1"], host: ["a"] } }),
    tunnelOf({ identifiers: { host: ["b"], defaultRoute: true } }),
    tunnelOf({ identifiers: { defaultRoute: true }, draining: true }),
  ];
  metrics.live.watch(() => [clusterOf("blue", ...tunnels)]);
  has(
    await lines(metrics),
    `${K}_ready_backends{proxy_strategy="destHost"} 2`,
    `${K}_ready_backends{proxy_strategy="cidr"} 0`,
    `${K}_ready_backends{proxy_strategy="defaultRoute"} 1`,
  );
});

test("a resume is counted by what came of it, and by how the connection before was lost", async () => {
  const { links, registry } = new ServerMetrics({ processMetrics: false });
  links.resumed({ suspendedMs: 0, replayedBytes: 0, lost: undefined });
  links.resumed({ suspendedMs: 500, replayedBytes: 10, lost: { lossCause: "silent" } });
  links.resumed({ suspendedMs: 500, replayedBytes: 10, lost: { lossCause: "silent" } });
  links.resumeFailed("bad_proof");
  const text = (await registry.metrics()).split("\n");
  has(
    text,
    'culvert_server_link_resumes_total{result="moved",cause="planned"} 1',
    'culvert_server_link_resumes_total{result="resumed",cause="silent"} 2',
    'culvert_server_link_resumes_total{result="bad_proof",cause="unknown"} 1',
    "culvert_server_link_suspended_seconds_total 1",
    "culvert_server_link_replayed_bytes_total 20",
  );
});

test("a refused CONNECT is a dial failure, a connection that breaks later is none", async () => {
  const metrics = new ServerMetrics({ processMetrics: false });
  const blue = clusterOf("blue");
  metrics.live.watch(() => [blue]);
  metrics.connectionOpened(blue);
  metrics.connectionFinished({ outcome: "no_agent", cluster: blue, durationMs: 3 });
  metrics.connectionOpened(blue);
  metrics.connectionEstablished(blue, 1);
  metrics.connectionFinished({ outcome: "agent_lost", established: true, cluster: blue, durationMs: 1 });
  const text = await lines(metrics);
  has(
    text,
    `${K}_dial_failure_count{reason="no_agent"} 1`,
    'culvert_server_established_connections{cluster="blue"} 0',
    'culvert_server_dial_duration_seconds_sum{outcome="no_agent"} 0.003',
    'culvert_server_dial_duration_seconds_count{outcome="ok"} 1',
    `${K}_dial_duration_seconds_count 1`,
  );
  assert.equal(text.filter((line) => line.startsWith(`${K}_dial_failure_count{`)).length, 1);
});

test("live numbers are read at the scrape, and refusals are counted by kind", async () => {
  const metrics = new ServerMetrics({ processMetrics: false });
  const busy = clusterOf("blue", tunnelOf({ streamCount: 1 }), tunnelOf({ streamCount: 2, bufferedBytes: 4_096 }));
  metrics.live.watch(() => [busy]);
  metrics.agentRefused("401", { cluster: "blue", from: "10.0.0.9", reason: "no client certificate was sent" });
  metrics.handshakeFailed("callers");
  metrics.waitingDropped("unix");
  metrics.http2Ended("callers", "flood");
  has(
    await lines(metrics),
    'culvert_server_streams{cluster="blue"} 3',
    'culvert_server_buffered_bytes{cluster="blue"} 4096',
    'culvert_server_agents_refused_total{cluster="blue",code="401"} 1',
    'culvert_server_handshakes_failed_total{listener="callers"} 1',
    'culvert_server_waiting_connections_dropped_total{listener="unix"} 1',
    'culvert_server_http2_connections_ended_total{listener="callers",reason="flood"} 1',
  );
});

const GAUGES = [
  "agents",
  "tunnels",
  "connections",
  "established_connections",
  "pending_opens",
  "streams",
  "buffered_bytes",
];

test("each gauge has a series for each configured cluster, 0 where it has nothing, and no other", async () => {
  const metrics = new ServerMetrics({ processMetrics: false });
  let clusters: LiveCluster[] = [clusterOf("blue"), clusterOf("green", tunnelOf(), tunnelOf({ draining: true }))];
  metrics.live.watch(() => clusters);
  const none = await lines(metrics);
  for (const name of GAUGES) {
    has(none, `culvert_server_${name}{cluster="blue"} 0`);
    assert.equal(none.filter((line) => line.startsWith(`culvert_server_${name}{`)).length, 2, name);
  }
  has(none, 'culvert_server_agents{cluster="green"} 1', 'culvert_server_tunnels{cluster="green"} 2');
  clusters = [clusterOf("blue", tunnelOf({ probe: true }))];
  const other = await lines(metrics);
  has(other, 'culvert_server_agents{cluster="blue"} 0', 'culvert_server_tunnels{cluster="blue"} 0');
  assert.ok(!other.some((line) => line.includes("green")));
});

test("a suspended cluster has no series of agents, and where all are suspended there is no number of agents at all", async () => {
  const metrics = new ServerMetrics({ processMetrics: false });
  const suspended = { ...clusterOf("blue"), closedBecause: 'cluster "blue" is suspended' };
  let clusters: LiveCluster[] = [suspended, clusterOf("green", tunnelOf())];
  metrics.live.watch(() => clusters);
  const isAgents = (line: string) => /^culvert_server_agents\b/.test(line);
  const ofHealth = async () => (await metrics.withoutNames.metrics()).split("\n");
  assert.deepEqual((await lines(metrics)).filter(isAgents), ['culvert_server_agents{cluster="green"} 1']);
  assert.deepEqual((await ofHealth()).filter(isAgents), ["culvert_server_agents 1"]);
  has(await lines(metrics), 'culvert_server_connections{cluster="blue"} 0');
  clusters = [suspended];
  assert.deepEqual([...(await lines(metrics)), ...(await ofHealth())].filter(isAgents), []);
});

test("where no cluster is named, each gauge is one number for all, those of clusters that have just gone included", async () => {
  const metrics = new ServerMetrics({ processMetrics: false });
  const [blue, green] = [
    clusterOf("blue", tunnelOf({ streamCount: 2 })),
    clusterOf("green", tunnelOf({ streamCount: 3 })),
  ];
  let clusters: LiveCluster[] = [blue, green];
  metrics.live.watch(() => clusters);
  for (const cluster of [blue, green]) {
    metrics.tunnelOpened(cluster.name);
    metrics.connectionOpened(cluster);
    metrics.connectionEstablished(cluster, 1);
  }
  const shown = async (): Promise<string[]> => (await metrics.withoutNames.metrics()).split("\n");
  const all = ["agents 2", "tunnels 2", "connections 2", "established_connections 2", "pending_opens 0", "streams 5"];
  has(await shown(), ...all.map((line) => `culvert_server_${line}`));
  clusters = [blue];
  has(await shown(), "culvert_server_connections 2", "culvert_server_established_connections 2");
  assert.doesNotMatch((await shown()).join("\n"), /blue|green/);
});

test("what one cluster does is told to its figures, and refusals of those who came to none are kept apart", () => {
  const metrics = new ServerMetrics({ processMetrics: false });
  const blue = new ClusterFigures();
  metrics.watchClusters({
    figuresOf: (cluster) => (cluster === "blue" ? blue : undefined),
    faults: () => [],
    tokenReviews: () => [],
  });
  const [known, gone] = [clusterOf("blue"), clusterOf("gone")];
  const refusal = { from: "CN=x", target: "10.0.0.1:22", reason: "the target is denied" };
  metrics.connectionFinished({ outcome: "forbidden", cluster: known, durationMs: 1, refusal });
  metrics.connectionFinished({ outcome: "ok", cluster: known, bytesUp: 7, durationMs: 1 });
  metrics.connectionFinished({ outcome: "unauthenticated", cluster: gone, durationMs: 1, refusal });
  metrics.agentRefused("403", { cluster: "blue", from: "10.0.0.9", reason: "it is suspended" });
  blue.close();
  assert.deepEqual([blue.connects, blue.bytesUp], [2, 7]);
  assert.deepEqual(
    blue.refusals.list().map(({ side, code }) => `${side} ${code}`),
    ["agent 403", "caller forbidden"],
  );
  assert.deepEqual(
    metrics.refusals.list().map(({ code }) => code),
    ["unauthenticated"],
  );
});

test("faults of the clusters' files are counted as long as they are there", async () => {
  const metrics = new ServerMetrics({ processMetrics: false });
  let faults = ["red.yaml: name is missing."];
  metrics.watchClusters({ figuresOf: () => undefined, faults: () => faults, tokenReviews: () => [] });
  has(await lines(metrics), "culvert_server_cluster_faults 1");
  faults = [];
  has(await lines(metrics), "culvert_server_cluster_faults 0");
});

test("streams reset for memory are counted on after their tunnel has gone", async () => {
  const metrics = new ServerMetrics({ processMetrics: false });
  const live = { ...tunnelOf(), resetForMemory: 3 };
  metrics.live.watch(() => [clusterOf("blue", live)]);
  has(await lines(metrics), "culvert_server_streams_reset_for_memory_total 3");
  metrics.tunnelOpened("blue");
  metrics.tunnelClosed("blue", "lost", live.resetForMemory);
  live.resetForMemory = 1;
  has(await lines(metrics), "culvert_server_streams_reset_for_memory_total 4");
});
