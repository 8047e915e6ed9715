import assert from "node:assert/strict";
import { type TestContext, test } from "node:test";
import { until } from "../../shared/basics/testing/wait.ts";
import { KubeCollection } from "../../shared/kubernetes/kube-collection.ts";
import { FakeCollection } from "../../shared/kubernetes/testing/fake-collection.ts";
import { LEASES, Lease, LeaseBook, leaseName, OwnLease } from "./leases.ts";

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

test("an attempt that is under way when a server leaves is no failure, and the last one", async (t) => {
  const { api, own, attempts, stored } = await leaseOf(t);
  await own.start();
  const { answer } = api.stub;
  let isAsked = false;
  api.stub.answer = (asked) => {
    if (asked.method === "DELETE") return answer(asked);
    isAsked = true;
    return new Promise(() => {});
  };
  await until(() => isAsked);
  const before = attempts.length;
  await own.leave();
  assert.deepEqual([attempts.length, stored()], [before, undefined]);
});

test("an id that no object may be called by still has a name of its own", () => {
  assert.equal(leaseName("srv-1"), "culvert-server-srv-1");
  const names = ["Srv-1", "srv_1", "srv.1", "-", "___", "x".repeat(128)].map(leaseName);
  for (const name of names) assert.match(name, /^culvert-server-[a-z0-9]([a-z0-9-]*[a-z0-9])?$/);
  assert.equal(new Set(names).size, names.length);
});

const WALL = Date.parse("2026-06-01T12:00:00Z");
const SECOND = 1_000;
const at = (ms: number): string => new Date(WALL + ms).toISOString().replace("Z", "000Z");

function lease(name: string, resourceVersion: string, spec: Lease["spec"]): Lease {
  return { metadata: { name, resourceVersion }, spec: { leaseDurationSeconds: 30, ...spec } };
}

test("a lease that is seen for the first time is valid as in Konnectivity: until its duration after its last renewal", () => {
  for (const [spec, valid] of [
    [{ renewTime: at(-29 * SECOND) }, 1],
    [{ renewTime: at(-31 * SECOND) }, 0],
    [{ renewTime: at(-31 * SECOND), acquireTime: at(0) }, 0],
    [{ acquireTime: at(-1 * SECOND) }, 1],
    [{ renewTime: at(3_600 * SECOND) }, 1],
    [{}, 0],
    [{ renewTime: at(-1 * SECOND), leaseDurationSeconds: null }, 0],
    [{ renewTime: "yesterday" }, 0],
  ] as const) {
    assert.equal(new LeaseBook().count([lease("a", "1", spec)], 0, WALL).valid, valid, JSON.stringify(spec));
  }
});

test("a lease without a spec, which the API allows, has ended", () => {
  const empty = Lease.parse({ metadata: { name: "empty", resourceVersion: "1" } });
  const valid = lease("valid", "1", { renewTime: at(0) });
  assert.equal(new LeaseBook().count([empty, valid], 0, WALL).valid, 1);
});

test("it is to be counted again when the first lease ends or becomes stale", () => {
  const leases = [-10, -20, -40].map((s, i) => lease(`${i}`, "1", { renewTime: at(s * SECOND) }));
  assert.equal(new LeaseBook().count(leases, 5 * SECOND, WALL).nextMs, 10 * SECOND);
  assert.equal(new LeaseBook().count(leases.slice(2), 5 * SECOND, WALL).nextMs, 30 * SECOND);
  assert.equal(new LeaseBook().count([], 0, WALL).nextMs, undefined);
});

test("once a renewal was seen the clocks of other servers do not matter", () => {
  const book = new LeaseBook();
  const old = at(-3_600 * SECOND); // a clock that is an hour behind
  assert.equal(book.count([lease("a", "1", { renewTime: old })], 0, WALL).valid, 0);
  assert.equal(book.count([lease("a", "2", { renewTime: old })], 10 * SECOND, WALL).valid, 1);
  assert.equal(book.count([lease("a", "2", { renewTime: old })], 39 * SECOND, WALL).valid, 1);
  assert.equal(book.count([lease("a", "2", { renewTime: old })], 41 * SECOND, WALL).valid, 0);
});

test("a clock that is ahead makes a lease no longer", () => {
  const book = new LeaseBook();
  const ahead = [lease("a", "1", { renewTime: at(3_600 * SECOND) })];
  assert.equal(book.count(ahead, 0, WALL).nextMs, 30 * SECOND);
  assert.equal(book.count(ahead, 31 * SECOND, WALL + 31 * SECOND).valid, 0);
});

test("a lease is stale when it was watched for its whole duration without a renewal, and no sooner", () => {
  const book = new LeaseBook();
  const dead = [lease("a", "7", { renewTime: at(-60 * SECOND) })];
  assert.deepEqual(book.count(dead, 0, WALL).stale, []);
  assert.deepEqual(book.count(dead, 29 * SECOND, WALL).stale, []);
  assert.deepEqual(book.count(dead, 31 * SECOND, WALL).stale, [{ name: "a", version: "7" }]);
  assert.deepEqual(book.count([], 32 * SECOND, WALL).stale, []);
});
