import assert from "node:assert/strict";
import { test } from "node:test";
import { AgentMetrics } from "./metrics.ts";

const K = "konnectivity_network_proxy_agent";

async function has(metrics: AgentMetrics, ...wanted: readonly string[]): Promise<void> {
  const text = await metrics.registry.metrics();
  for (const line of wanted) assert.ok(text.split("\n").includes(line), `${line} is missing from\n${text}`);
}

test("a stream is counted from its open to its end, under our name and Konnectivity's", async () => {
  const metrics = new AgentMetrics({ processMetrics: false });
  metrics.streamOpened();
  metrics.pendingDials(1);
  await has(metrics, "culvert_agent_streams 1", "culvert_agent_pending_dials 1", `${K}_open_endpoint_connections 0`);
  metrics.pendingDials(-1);
  metrics.targetReached(30);
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

test("the uplink's state is one of five, and connected servers follow it", async () => {
  const metrics = new AgentMetrics({ processMetrics: false });
  metrics.uplinkState("connecting");
  metrics.attemptFailed("refused");
  metrics.uplinkState("connected");
  await has(
    metrics,
    'culvert_agent_uplink_state{state="connected"} 1',
    'culvert_agent_uplink_state{state="connecting"} 0',
    `${K}_open_server_connections 1`,
    `${K}_known_server_count 1`,
    "culvert_agent_uplink_connects_total 1",
    'culvert_agent_uplink_failures_total{reason="refused"} 1',
  );
  metrics.uplinkState("waiting");
  await has(metrics, `${K}_open_server_connections 0`);
});

test("streams reset for memory are counted on when their session has gone", async () => {
  const metrics = new AgentMetrics({ processMetrics: false });
  let live = 3;
  metrics.watch({ bufferedBytes: () => 0, resetForMemory: () => live });
  await has(metrics, "culvert_agent_streams_reset_for_memory_total 3");
  metrics.sessionEnded(live);
  live = 1;
  await has(metrics, "culvert_agent_streams_reset_for_memory_total 4");
});
