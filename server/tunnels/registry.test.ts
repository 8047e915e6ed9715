import assert from "node:assert/strict";
import { test } from "node:test";
import { CulvertError } from "../../shared/outcomes.ts";
import { Registry } from "./registry.ts";
import { fakeAgent } from "./testing/fake-agent.ts";

const LIMITS = { serverId: "srv", maxAgents: 2, drainTimeoutMs: 50 };
const A = { agentId: "a", instance: "1", identity: "CN=agent" };

test("a cluster that is not known is reported as such", () => {
  const registry = new Registry();
  registry.add("default", LIMITS);
  assert.equal(registry.cluster("default").name, "default");
  assert.throws(
    () => registry.cluster("blue"),
    (error) => error instanceof CulvertError && error.code === "unknown_cluster" && /"blue"/.test(error.message),
  );
});

test("tunnels of a removed cluster that still drain say nothing of the one that has its name now", () => {
  const registry = new Registry();
  const seen: string[] = [];
  registry.watch((name, cluster) =>
    seen.push(`${name} ${cluster === undefined ? "is gone" : cluster.pick()?.agent.agentId}`),
  );
  const old = registry.add("blue", LIMITS);
  const place = old.reserve(A);
  place.hold(fakeAgent({ agentId: "old" }).tunnel);
  registry.remove(old);
  registry
    .add("blue", LIMITS)
    .reserve(A)
    .hold(fakeAgent({ agentId: "new" }).tunnel);
  place.release();
  assert.deepEqual(seen, ["blue old", "blue is gone", "blue new", "blue new"]);
});
