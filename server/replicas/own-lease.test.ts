import assert from "node:assert/strict";
import { type TestContext, test } from "node:test";
import { until } from "../../shared/basics/testing/wait.ts";
import { KubeCollection } from "../../shared/kubernetes/kube-collection.ts";
import { FakeCollection } from "../../shared/kubernetes/testing/fake-collection.ts";
import { LEASES, Lease } from "./leases.ts";
import { leaseName, OwnLease } from "./own-lease.ts";

const LABELS = { "k8s-app": "culvert-server" };

/** The lease of a server `srv-1` that is renewed often, and what became of each attempt. */
async function leaseOf(t: TestContext, before: (api: FakeCollection) => void = () => {}) {
  const api = await FakeCollection.start(t, LEASES);
  before(api);
  const leases = new KubeCollection(api.access, LEASES, "ns");
  const attempts: string[] = [];
  const onAttempt = (failure?: Error): void => void attempts.push(failure?.message ?? "written");
  const own = new OwnLease({ leases, serverId: "srv-1", labels: LABELS, onAttempt, renewMs: 5 });
  t.after(async () => {
    await own.leave();
    leases.close();
  });
  const stored = () => api.objects.get("culvert-server-srv-1");
  return { api, own, attempts, stored };
}

test("a lease is created in Konnectivity's form, renewed without being read again, and deleted in the end", async (t) => {
  const { api, own, attempts, stored } = await leaseOf(t);
  await own.start();
  const { metadata, spec } = stored() ?? assert.fail("no lease");
  assert.deepEqual(metadata.labels, LABELS);
  const { holderIdentity, leaseDurationSeconds, renewTime } = spec as Record<string, unknown>;
  assert.deepEqual([holderIdentity, leaseDurationSeconds], ["srv-1", 30]);
  assert.match(String(renewTime), /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z$/);
  await until(() => attempts.length >= 3);
  await own.leave();
  assert.equal(stored(), undefined);
  const name = "culvert-server-srv-1";
  assert.deepEqual(api.asked.slice(0, 3), [`get ${name}`, `create ${name}`, `update ${name}`]);
  assert.equal(api.asked.at(-1), `delete ${name}`);
  assert.equal(api.asked.filter((asked) => asked.startsWith("get")).length, 1);
  assert.deepEqual(new Set(attempts), new Set(["written"]));
});

test("a lease of a former process of this id is taken over, with the fields that others have added", async (t) => {
  const { own, stored } = await leaseOf(t, (api) => {
    api.put({ metadata: { name: "culvert-server-srv-1", labels: { old: "yes" } }, spec: { leaseTransitions: 7 } });
  });
  await own.start();
  const lease = stored() ?? assert.fail("no lease");
  assert.deepEqual(lease.metadata.labels, LABELS);
  assert.equal((lease["spec"] as Record<string, unknown>)["leaseTransitions"], 7);
  assert.ok(Lease.parse(lease).spec.renewTime);
});

test("a lease that another has changed or deleted is written all the same", async (t) => {
  const { api, own, attempts, stored } = await leaseOf(t);
  await own.start();
  for (const disturb of [() => api.put(stored() ?? assert.fail()), () => api.delete("culvert-server-srv-1")]) {
    disturb();
    const before = attempts.length;
    await until(() => attempts.length > before + 1);
    assert.ok(stored());
  }
  assert.deepEqual(new Set(attempts), new Set(["written"]));
});

test("a missing right is a sentence that names the rule, and the lease is written as soon as it is there", async (t) => {
  const { api, own, attempts, stored } = await leaseOf(t, ({ forbidden }) => forbidden.add("create"));
  await own.start();
  const cure =
    /let us create the lease culvert-server-srv-1: grant the verb "create" on "leases" \(coordination\.k8s\.io\)/;
  assert.match(attempts[0] ?? "", cure);
  api.forbidden.clear();
  await until(() => attempts.at(-1) === "written");
  assert.ok(stored());
});

test("an id that no object may be called by still has a name of its own", () => {
  assert.equal(leaseName("srv-1"), "culvert-server-srv-1");
  const names = ["Srv-1", "srv_1", "srv.1", "-", "___", "x".repeat(128)].map(leaseName);
  for (const name of names) assert.match(name, /^culvert-server-[a-z0-9]([a-z0-9-]*[a-z0-9])?$/);
  assert.equal(new Set(names).size, names.length);
});
