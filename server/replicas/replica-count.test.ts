import assert from "node:assert/strict";
import { type TestContext, test } from "node:test";
import { until } from "../../shared/basics/testing/wait.ts";
import { MAX_TIMER_MS } from "../../shared/basics/timers.ts";
import { ConfigError, defaultsOf } from "../../shared/config/options.ts";
import { FakeCollection } from "../../shared/kubernetes/testing/fake-collection.ts";
import { createLogger } from "../../shared/runtime/logger.ts";
import { serverOptions } from "../options/options.ts";
import { LEASES } from "./leases.ts";
import { ENDPOINT_SLICES, EndpointSlice, serversIn, startReplicaCount } from "./replica-count.ts";
import { ServerCount } from "./server-count.ts";

const OPTIONS = {
  ...defaultsOf(serverOptions),
  serverCountService: "",
  leaseNamespace: "ns",
  kubeconfig: "",
  leaseLabel: ["k8s-app=culvert-server"],
};

/** A server that writes a lease and counts. */
function serverWith(t: TestContext, api: FakeCollection, serverId: string) {
  const lines: Record<string, unknown>[] = [];
  const destination = { write: (line: string) => void lines.push(JSON.parse(line)) };
  const log = createLogger({ level: "info", format: "json", name: "server", destination });
  const servers = new ServerCount();
  const set = (count: number) => servers.set(count);
  const replicas = startReplicaCount({ ...OPTIONS, serverId, kubeconfig: api.path }, set, log);
  t.after(() => replicas.close());
  return { servers, replicas, lines };
}

test("servers find each other by their leases, and one that leaves is counted no more", async (t) => {
  const api = await FakeCollection.start(t, LEASES);
  const one = serverWith(t, api, "one");
  await until(() => one.servers.value === 1);
  const two = serverWith(t, api, "two");
  await until(() => one.servers.value === 2 && two.servers.value === 2);
  assert.deepEqual([one.replicas.fault, two.replicas.fault], [undefined, undefined]);
  await two.replicas.leave();
  await until(() => one.servers.value === 1);
  assert.deepEqual(
    one.lines.map(({ msg, servers }) => `${msg}: ${servers}`),
    [1, 2, 1].map((servers) => `number of servers changed: ${servers}`),
  );
});

test("the lease of a server that was killed counts until it ends, and is deleted then", async (t) => {
  const api = await FakeCollection.start(t, LEASES);
  const labels = { "k8s-app": "culvert-server" };
  const spec = { leaseDurationSeconds: 1, renewTime: new Date().toISOString() };
  api.put({ metadata: { name: "culvert-server-killed", labels }, spec });
  const { servers } = serverWith(t, api, "one");
  await until(() => servers.value === 2);
  await until(() => servers.value === 1 && !api.objects.has("culvert-server-killed"));
});

test("leases that claim to last for decades are counted again within the timers that Node takes", async (t) => {
  const api = await FakeCollection.start(t, LEASES);
  api.forbidden.add("create"); // there is none of its own, which ends sooner
  const labels = { "k8s-app": "culvert-server" };
  const spec = { leaseDurationSeconds: 1e9, renewTime: new Date().toISOString() };
  for (const name of ["one", "other"]) api.put({ metadata: { name: `culvert-server-eternal-${name}`, labels }, spec });
  const waits = t.mock.method(globalThis, "setTimeout");
  const { servers } = serverWith(t, api, "one");
  await until(() => servers.value === 2);
  for (const [, ms = 0] of waits.mock.calls.map((call) => call.arguments)) assert.ok(ms <= MAX_TIMER_MS, `${ms}`);
});

test("stale leases are deleted a few at a time", async (t) => {
  const api = await FakeCollection.start(t, LEASES);
  for (let lease = 0; lease < 20; lease++) {
    api.put({ metadata: { name: `stale-${lease}`, labels: { "k8s-app": "culvert-server" } } });
  }
  const { answer } = api.stub;
  const waiting: (() => void)[] = [];
  let most = 0;
  api.stub.answer = async (asked) => {
    if (asked.method === "DELETE") await new Promise<void>((resolve) => waiting.push(resolve));
    return answer(asked);
  };
  serverWith(t, api, "one");
  await until(() => waiting.length === 8 && api.watching === 1);
  await until(() => {
    most = Math.max(most, waiting.length);
    for (const goOn of waiting.splice(0)) goOn();
    return api.objects.size === 1;
  });
  api.stub.answer = answer;
  assert.ok(most <= 8, `${most} at a time`);
});

test("where the Service does not exist, the number that was given stays, and a fault says what to check", async (t) => {
  const api = await FakeCollection.start(t, ENDPOINT_SLICES);
  const log = createLogger({ level: "silent", format: "json", name: "server" });
  const servers = new ServerCount(3);
  const options = { ...OPTIONS, serverId: "one", serverCountService: "ns/absent" };
  const replicas = startReplicaCount(options, (count) => servers.set(count), log, api.access);
  t.after(() => replicas.close());
  await until(() => replicas.fault !== undefined && api.watching === 1);
  assert.match(replicas.fault ?? "", /no EndpointSlices of Service ns\/absent: check --server-count-service/);
  assert.equal(servers.value, 3);
  const endpoints = ["10.0.0.1", "10.0.0.2"].map((address) => ({ addresses: [address] }));
  api.put({ metadata: { name: "s", labels: { "kubernetes.io/service-name": "absent" } }, endpoints });
  await until(() => servers.value === 2 && replicas.fault === undefined);
});

test("while the API server refuses the number stays, and the sentence is logged once", async (t) => {
  const api = await FakeCollection.start(t, LEASES);
  const { servers, replicas, lines } = serverWith(t, api, "one");
  await until(() => servers.value === 1 && api.watching === 1);
  api.forbidden.add("list").add("watch");
  api.endWatches();
  await until(() => replicas.fault !== undefined);
  assert.match(replicas.fault ?? "", /grant the verb "list" on "leases"/);
  assert.equal(servers.value, 1);
  assert.equal(lines.filter(({ level }) => level === "warn").length, 1);
});

test("without credentials for an API server it does not start, and says which option wants them", () => {
  const log = createLogger({ level: "silent", format: "json", name: "test" });
  const start = (change: Partial<typeof OPTIONS>) => () =>
    startReplicaCount({ ...OPTIONS, serverId: "a", ...change }, () => true, log);
  const refused = (sentence: RegExp) => (error: unknown) =>
    error instanceof ConfigError && sentence.test(error.message);
  assert.throws(start({}), refused(/^--enable-lease-controller: this process is in no pod .*: give a kubeconfig\.$/));
  assert.throws(start({ serverCountService: "ns/x" }), refused(/^--server-count-service: this process is in no pod/));
});

const pod = (uid: string, address: string, conditions: object = { ready: true }) => ({
  ...{ addresses: [address], conditions },
  targetRef: { kind: "Pod", uid },
});
const slice = (...endpoints: object[]) =>
  EndpointSlice.parse({ metadata: { name: "s" }, addressType: "IPv4", endpoints, ports: [] });

test("servers are the endpoints of all slices that are ready and do not end, each pod once", () => {
  const both = [slice(pod("1", "10.0.0.1"), pod("2", "10.0.0.2")), slice(pod("1", "fd00::1"), pod("2", "fd00::2"))];
  for (const [slices, servers, why] of [
    [both, 2, "IPv4 and IPv6 of one pod"],
    [[slice(pod("1", "10.0.0.1")), slice(pod("2", "10.0.0.2"))], 2, "more than one slice"],
    [[slice(pod("1", "10.0.0.1"), pod("2", "10.0.0.2", { ready: false }))], 1, "one is not ready"],
    [[slice(pod("1", "10.0.0.1", {}), pod("2", "10.0.0.2", { ready: null }))], 2, "no condition is ready"],
    [
      [slice(pod("1", "10.0.0.1"), pod("2", "10.0.0.2", { ready: true, serving: true, terminating: true }))],
      1,
      "publishNotReadyAddresses calls a pod ready that ends",
    ],
    [[slice({ addresses: ["10.0.0.1"] }, { addresses: ["10.0.0.2"] })], 2, "endpoints without a pod"],
    [[EndpointSlice.parse({ metadata: { name: "s" }, endpoints: null })], 0, "the slice of a Service without pods"],
    [[], 0, "no slice"],
  ] as const) {
    assert.equal(serversIn(slices), servers, why);
  }
});
