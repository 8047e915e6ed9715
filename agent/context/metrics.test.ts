import assert from "node:assert/strict";
import { test } from "node:test";
import { AgentMetrics, type LiveUplink } from "./metrics.ts";

const K = "konnectivity_network_proxy_agent";
async function has(metrics: AgentMetrics, ...wanted: readonly string[]): Promise<void> {
  const text = await metrics.registry.metrics();
  for (const line of wanted) assert.ok(text.split("\n").includes(line), `${line} is missing from\n${text}`);
}

test("a stream is counted from its open to its end, under our name and Konnectivity's", async () => {
  const metrics = new AgentMetrics({ processMetrics: false });
  metrics.streamOpened();
  let pending = 1;
  metrics.watch({ pendingDials: () => pending });
  await has(metrics, "culvert_agent_streams 1", "culvert_agent_pending_dials 1", `${K}_open_endpoint_connections 0`);
  pending = 0;
  metrics.dialFinished("ok", 30);
  await has(metrics, `${K}_open_endpoint_connections 1`, `${K}_dial_duration_seconds_bucket{le="0.1"} 1`);
  metrics.streamFinished({ outcome: "ok", bytesUp: 1, bytesDown: 2 });
  await has(
    metrics,
    `${K}_open_endpoint_connections 0`,
    'culvert_agent_streams_total{outcome="ok"} 1',
    'culvert_agent_bytes_total{direction="up"} 1',
  );
});

test("dial failures have Konnectivity's two reasons", async () => {
  const metrics = new AgentMetrics({ processMetrics: false });
  for (const outcome of ["dial_timeout", "dial_refused", "dial_name", "forbidden"] as const) {
    metrics.streamOpened();
    metrics.streamFinished({ outcome });
  }
  await has(
    metrics,
    `${K}_endpoint_dial_failure_total{reason="timeout"} 1`,
    `${K}_endpoint_dial_failure_total{reason="unknown"} 2`,
  );
});

test("a dial that failed has its time under its outcome, and Konnectivity's histogram counts those that succeeded", async () => {
  const metrics = new AgentMetrics({ processMetrics: false });
  metrics.dialFinished("dial_timeout", 4_000);
  metrics.dialFinished("ok", 2);
  await has(
    metrics,
    'culvert_agent_dial_duration_seconds_bucket{le="2.5",outcome="dial_timeout"} 0',
    'culvert_agent_dial_duration_seconds_bucket{le="5",outcome="dial_timeout"} 1',
    'culvert_agent_dial_duration_seconds_count{outcome="ok"} 1',
    `${K}_dial_duration_seconds_count 1`,
  );
});

test("each server has the state of its uplink, and the sums follow, under our name and Konnectivity's", async () => {
  const metrics = new AgentMetrics({ processMetrics: false });
  await has(metrics, "culvert_agent_connected_servers 0", "culvert_agent_wanted_servers 0");
  const states: LiveUplink["state"][] = [{ state: "connected" }, { state: "waiting" }, { state: "suspended" }];
  const uplinks = states.map((state, index) => ({ server: `wss://${index}`, state, path: {} }) as LiveUplink);
  metrics.watch({ uplinks: () => uplinks, wanted: () => 3 });
  metrics.attemptFailed("refused");
  metrics.uplinkConnected();
  await has(
    metrics,
    'culvert_agent_uplink_state{server="wss://0",state="connected"} 1',
    'culvert_agent_uplink_state{server="wss://0",state="waiting"} 0',
    'culvert_agent_uplink_state{server="wss://1",state="waiting"} 1',
    'culvert_agent_uplink_state{server="wss://2",state="suspended"} 1',
    "culvert_agent_connected_servers 1",
    "culvert_agent_wanted_servers 3",
    `${K}_open_server_connections 1`,
    `${K}_known_server_count 3`,
    "culvert_agent_uplink_connects_total 1",
    'culvert_agent_uplink_failures_total{reason="refused"} 1',
  );
});

test("what a path has shown is there for each server, and nothing where it has shown nothing", async () => {
  const metrics = new AgentMetrics({ processMetrics: false });
  const state = { state: "connected" } as const;
  const uplinks = [
    { server: "wss://a", state, path: { ageLimitMs: 1_800_000, heldBackMs: undefined } },
    { server: "wss://b", state, path: { ageLimitMs: 3_600_000, heldBackMs: 1_500 } },
  ];
  metrics.watch({ uplinks: () => uplinks });
  metrics.pathLearned("held_back");
  const series = (await metrics.registry.metrics())
    .split("\n")
    .filter((line) => line.startsWith("culvert_agent_path_"));
  assert.deepEqual(series, [
    'culvert_agent_path_lessons_total{lesson="age_limit"} 0',
    'culvert_agent_path_lessons_total{lesson="held_back"} 1',
    'culvert_agent_path_age_limit_seconds{server="wss://a"} 1800',
    'culvert_agent_path_age_limit_seconds{server="wss://b"} 3600',
    'culvert_agent_path_held_back_seconds{server="wss://b"} 1.5',
  ]);
});

test("streams reset for memory are counted on when their session has gone", async () => {
  const metrics = new AgentMetrics({ processMetrics: false });
  let live = 3;
  metrics.watch({ resetForMemory: () => live });
  await has(metrics, "culvert_agent_streams_reset_for_memory_total 3");
  metrics.sessionEnded(live);
  live = 1;
  await has(metrics, "culvert_agent_streams_reset_for_memory_total 4");
});
