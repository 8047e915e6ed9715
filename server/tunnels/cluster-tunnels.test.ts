import assert from "node:assert/strict";
import { after, test } from "node:test";
import { Cancellation } from "../../shared/basics/promises.ts";
import { until } from "../../shared/basics/testing/wait.ts";
import { CulvertError } from "../../shared/outcomes.ts";
import { LinkRefused } from "../../shared/wire/handshake.ts";
import { Claims } from "../clusters/routing-rules.ts";
import { ClusterTunnels, Registry } from "./cluster-tunnels.ts";
import { fakeAgent, openOptions } from "./testing/fake-agent.ts";
import type { Tunnel } from "./tunnel.ts";

const LIMITS = { serverId: "srv", maxAgents: 2, drainTimeoutMs: 50 };
const A = { agentId: "a", instance: "1", identity: "CN=agent" };

const nobody = () => new Cancellation<CulvertError>();

test("a CONNECT that waits is given the first agent the moment it comes", async () => {
  const cluster = new ClusterTunnels("default", LIMITS);
  const waiting = cluster.whenAvailable(5_000, nobody());
  const { tunnel } = fakeAgent();
  const place = cluster.places.reserve(A);
  assert.equal(cluster.pick(), undefined, "a reservation is no tunnel yet");
  place.join(tunnel);
  assert.equal(await waiting, tunnel);
});

test("waiting in vain ends with a sentence that names the cluster", async () => {
  const cluster = new ClusterTunnels("blue", LIMITS);
  await assert.rejects(cluster.whenAvailable(10, nobody()), {
    code: "no_agent",
    message: /^no agent of cluster "blue" is connected: check that one runs, and its log$/,
  });
});

test("agents that all drain are told apart from no agents", async () => {
  const cluster = new ClusterTunnels("blue", LIMITS);
  const agent = fakeAgent();
  cluster.places.reserve(A).join(agent.tunnel);
  agent.say({ type: "drain", retryAfterMs: 0 });
  await assert.rejects(cluster.whenAvailable(10, nobody()), {
    code: "draining",
    message: /shutting down, and no other/,
  });
});

test("a caller that leaves stops waiting", async () => {
  const cluster = new ClusterTunnels("default", LIMITS);
  const caller = new Cancellation<CulvertError>();
  const waiting = cluster.whenAvailable(5_000, caller);
  caller.cancel(new CulvertError("caller_gone", "gone"));
  await assert.rejects(waiting, { code: "caller_gone", message: /gone/ });
});

test("a CONNECT that waits no more is not looked at again when agents come", async () => {
  const cluster = new ClusterTunnels("default", LIMITS);
  let looks = 0;
  const candidates = { pick: () => void looks++, noAgent: () => cluster.noAgent() } as unknown as ClusterTunnels;
  await assert.rejects(cluster.whenAvailable(0, nobody(), candidates), { code: "no_agent" });
  const before = looks;
  cluster.tunnelAvailable();
  assert.equal(looks, before);
});

test("an agent without a connection leaves its place to another one only if nobody's stream waits for it", async () => {
  const cluster = new ClusterTunnels("default", { ...LIMITS, maxAgents: 1 });
  const agent = fakeAgent({ onTarget: (target) => target.pipe(target) });
  cluster.places.reserve(A).join(agent.tunnel);
  const stream = await agent.tunnel.open({ host: "10.0.0.1", port: 443 }, openOptions());
  agent.link.suspend();
  assert.throws(() => cluster.places.reserve({ ...A, agentId: "b" }), LinkRefused);
  assert.equal(agent.tunnel.closed, false);
  stream.destroy();
  await until(() => agent.tunnel.streamCount === 0);
  cluster.places.reserve({ ...A, agentId: "b" });
  assert.equal(agent.tunnel.closed, true);
});

test("two hellos at once cannot both have the last place", () => {
  const cluster = new ClusterTunnels("default", { ...LIMITS, maxAgents: 1 });
  const place = cluster.places.reserve(A);
  assert.throws(() => cluster.places.reserve({ ...A, agentId: "b" }), LinkRefused);
  place.leave();
  cluster.places.reserve({ ...A, agentId: "b" });
});

test("the second link of a process leaves the first untouched", () => {
  const cluster = new ClusterTunnels("default", LIMITS);
  const { tunnel } = fakeAgent();
  cluster.places.reserve(A).join(tunnel);
  assert.throws(() => cluster.places.reserve(A), /already_connected/);
  assert.equal(cluster.pick(), tunnel);
  assert.equal(tunnel.draining, false);
});

test("a restarted agent replaces its old tunnel, which drains and closes", async () => {
  const cluster = new ClusterTunnels("default", LIMITS);
  const [old, young] = [fakeAgent(), fakeAgent({ instance: "2" })];
  const oldPlace = cluster.places.reserve(A);
  oldPlace.join(old.tunnel);
  const youngPlace = cluster.places.reserve({ ...A, instance: "2" });
  assert.equal(old.tunnel.draining, false, "not before the newcomer stands");
  youngPlace.join(young.tunnel);
  assert.equal(cluster.pick(), young.tunnel);
  await old.tunnel.closedWith;
  oldPlace.leave();
  assert.deepEqual([...cluster.tunnels()], [young.tunnel]);
  assert.throws(
    () => cluster.places.reserve({ ...A, instance: "2" }),
    /already_connected/,
    "the id is still the newcomer's",
  );
});

test("an agent that may not claim any more what it claimed in its hello gets no streams, and replaces nobody", async () => {
  const cluster = new ClusterTunnels("blue", LIMITS);
  const { tunnel: old } = fakeAgent();
  cluster.places.reserve(A).join(old);
  const { tunnel } = fakeAgent({ instance: "2", identifiers: { ipv4: ["10.0.0.1"] } });
  const place = cluster.places.reserve({ ...A, instance: "2" });
  cluster.rules = { strategies: ["destHost", "default"], strict: false, claims: new Claims([]) };
  place.join(tunnel);
  assert.equal(tunnel.closed, true);
  assert.match(
    String((await tunnel.closedWith)?.message),
    /^the agent may no longer claim 10\.0\.0\.1 in cluster "blue" \(agents\.claims\)$/,
  );
  place.leave();
  assert.equal(cluster.pick(), old);
  assert.equal(old.draining, false);
});

test("a newcomer that never stands gives the id back to the tunnel it would have replaced", () => {
  const cluster = new ClusterTunnels("default", LIMITS);
  const { tunnel } = fakeAgent();
  const place = cluster.places.reserve(A);
  place.join(tunnel);
  cluster.places.reserve({ ...A, instance: "2" }).leave();
  assert.throws(() => cluster.places.reserve(A), /already_connected/);
  place.leave();
  cluster.places.reserve(A);
});

/** Starts of one agent, each with a stream that keeps its tunnel there. */
function starts(cluster: ClusterTunnels, instances: readonly string[]) {
  const started = instances.map((instance) => {
    const agent = fakeAgent({ instance, onStream: (stream) => stream.accept() });
    const place = cluster.places.reserve({ ...A, instance });
    place.join(agent.tunnel);
    agent.tunnel.open({ host: "x", port: 1 }, openOptions()).catch(() => {});
    return { ...agent, place };
  });
  after(() => {
    for (const { cut } of started) cut();
  });
  return started;
}

function closed(started: readonly { readonly tunnel: Tunnel }[]): boolean[] {
  return started.map(({ tunnel }) => tunnel.closed);
}

const OTHER_RUNS = /another running process uses agent id "a" \(from 127\.0\.0\.1\): give each its own --agent-id/;

test("two processes with one id: the first one is refused when it comes back, and its streams go on", () => {
  const cluster = new ClusterTunnels("default", { ...LIMITS, drainTimeoutMs: 0 });
  const started = starts(cluster, ["1", "2"]);
  for (let times = 0; times < 3; times++) assert.throws(() => cluster.places.reserve(A), OTHER_RUNS);
  assert.deepEqual(closed(started), [false, false]);
  assert.equal(cluster.pick(), started[1]?.tunnel);
});

test("a process that is known to run may come back for the link of a tunnel that was replaced; any other is gone", () => {
  const cluster = new ClusterTunnels("default", LIMITS);
  const [first] = starts(cluster, ["1", "2"]);
  assert.equal(first?.place.abandoned, true, "a restart, as far as is known");
  assert.throws(() => cluster.places.reserve(A), OTHER_RUNS);
  assert.equal(first.place.abandoned, false);
});

test("a process takes the id back when the one that replaced it has lost its connection, and neither loses streams", () => {
  const cluster = new ClusterTunnels("default", LIMITS);
  const [first, second] = starts(cluster, ["1", "2"]);
  second?.link.suspend();
  const again = starts(cluster, ["1"]);
  assert.deepEqual(closed([...again, first, second].filter((one) => one !== undefined)), [false, false, false]);
  assert.equal(second?.place.abandoned, false, "it may be there still");
  assert.throws(() => cluster.places.reserve({ ...A, instance: "2" }), OTHER_RUNS, "now it is the one that comes back");
});

test("an agent that is killed and started again and again is admitted each time, and leaves no tunnel", () => {
  const cluster = new ClusterTunnels("default", LIMITS);
  const instances = Array.from({ length: 200 }, (_, index) => String(index));
  const started = instances.map((instance) => {
    const [agent] = starts(cluster, [instance]);
    agent?.link.suspend();
    return agent;
  });
  const open = started.filter((agent) => agent?.tunnel.closed === false);
  assert.deepEqual(open, started.slice(-1));
});

test("an agent that is killed again and again unnoticed leaves --max-agents tunnels at most; one that runs is spared", () => {
  const cluster = new ClusterTunnels("default", LIMITS);
  const started = starts(cluster, ["1", "2"]);
  assert.throws(() => cluster.places.reserve(A), OTHER_RUNS);
  started.push(...starts(cluster, ["3", "4", "5"]));
  assert.deepEqual(closed(started), [false, true, true, false, false]);
});

test("a replaced tunnel that has ended does not count towards --max-agents of them", () => {
  const cluster = new ClusterTunnels("default", LIMITS);
  const [first, ...others] = starts(cluster, ["1", "2"]);
  assert.throws(() => cluster.places.reserve(A), OTHER_RUNS, "it runs, so that others would be ended first");
  others.push(...starts(cluster, ["3"]));
  first?.tunnel.destroy(new Error("its last stream has ended"));
  first?.place.leave();
  others.push(...starts(cluster, ["4"]));
  assert.deepEqual(closed(others), [false, false, false]);
});

test("a peer that only measures has a place beside the agent with its id, and gets no CONNECT", async () => {
  const cluster = new ClusterTunnels("blue", { ...LIMITS, maxAgents: 1 });
  const doctor = fakeAgent({ probe: true });
  const measuring = cluster.places.reserveProbe();
  measuring.join(doctor.tunnel);
  assert.equal(cluster.pick(), undefined);
  await assert.rejects(cluster.whenAvailable(10, nobody()), {
    code: "no_agent",
    message: /no agent of cluster "blue" is connected/,
  });
  const { tunnel } = fakeAgent();
  cluster.places.reserve(A).join(tunnel);
  assert.equal(cluster.pick(), tunnel);
  assert.equal(cluster.tunnels().size, 2, "who ends all tunnels ends it, too");
  measuring.leave();
  measuring.leave();
  assert.deepEqual([...cluster.tunnels()], [tunnel]);
  tunnel.destroy(new Error("the test is over"));
  doctor.cut();
});

test("peers that only measure are few, and the cluster's state holds for them as well", () => {
  const cluster = new ClusterTunnels("blue", LIMITS);
  const places = Array.from({ length: 8 }, () => cluster.places.reserveProbe());
  assert.throws(() => cluster.places.reserveProbe(), /8 others measure .*"blue".*try again/);
  places[0]?.leave();
  cluster.places.reserveProbe();
  cluster.closedBecause = 'cluster "blue" is suspended';
  assert.throws(() => cluster.places.reserveProbe(), /suspended/);
  assert.throws(() => cluster.places.reserve(A), /suspended/);
});

test("tunnels of a removed cluster that still drain say nothing of the one that has its name now", () => {
  const registry = new Registry();
  const seen: string[] = [];
  registry.watch((name, cluster) =>
    seen.push(`${name} ${cluster === undefined ? "is gone" : cluster.pick()?.agent.agentId}`),
  );
  const old = registry.add("blue", LIMITS);
  const place = old.places.reserve(A);
  place.join(fakeAgent({ agentId: "old" }).tunnel);
  registry.remove(old);
  registry
    .add("blue", LIMITS)
    .places.reserve(A)
    .join(fakeAgent({ agentId: "new" }).tunnel);
  place.leave();
  assert.deepEqual(seen, ["blue old", "blue is gone", "blue new", "blue new"]);
});

test("names of clusters whose agents have come or gone are kept for one who wants to know", async () => {
  const registry = new Registry();
  const blue = registry.add("blue", LIMITS);
  blue.onChanged();
  assert.equal(registry.changed, undefined);
  registry.changed = new Set();
  const red = registry.add("red", LIMITS);
  assert.deepEqual([...registry.changed], ["red"]);
  registry.changed = new Set();
  const { tunnel } = fakeAgent();
  blue.places.reserve(A).join(tunnel);
  registry.remove(red);
  assert.deepEqual([...registry.changed], ["blue", "red"]);
});
