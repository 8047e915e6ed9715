import assert from "node:assert/strict";
import { connect, createServer } from "node:net";
import { type TestContext, test } from "node:test";
import { until } from "../shared/basics/testing/wait.ts";
import { folderOf } from "../shared/documents/testing/files.ts";
import { HttpsStub, never } from "../shared/kubernetes/testing/https-stub.ts";
import { type NameAnswer, startNameServer } from "../shared/names/testing/name-server.ts";
import type { OpenNameServer } from "./cluster-dns.ts";
import { serverAway } from "./refusal.ts";
import { Resolver, type ResolverOptions } from "./resolver.ts";

const NONE: ResolverOptions = {
  clusterDns: "",
  kubeconfig: "",
  resolveFromGuestClusterDns: false,
  resolveFromManagementClusterDns: false,
  disableResolver: false,
  preferIpv4: false,
};

/** A name server that the resolver reaches at any address, and the addresses that it was reached at. */
async function nameServer(t: TestContext, answer: (name: string, type: "A" | "AAAA") => NameAnswer) {
  const server = await startNameServer(answer);
  t.after(() => server[Symbol.asyncDispose]());
  const reachedAt: string[] = [];
  const open: OpenNameServer = async ({ host, port }) => {
    reachedAt.push(`${host}:${port}`);
    return connect({ host: "127.0.0.1", port: server.port });
  };
  return { open, reachedAt };
}

const both = (_name: string, type: "A" | "AAAA"): NameAnswer =>
  type === "A" ? ["10.0.0.1", "10.0.0.2"] : ["2001:db8:0:0:0:0:0:1"];

const away: OpenNameServer = () => Promise.reject(serverAway("there is no server"));

test("the agent resolves names unless something else is said, and addresses are no names", async () => {
  const resolver = new Resolver(NONE, away);
  for (const host of ["app.example", "10.0.0.1", "::1"]) assert.equal(await resolver.find(host, never()), undefined);
});

test("a name server of the cluster gives all addresses, the IPv4 ones alone where they are preferred", async (t) => {
  const { open, reachedAt } = await nameServer(t, both);
  const clusterDns = "10.96.0.10:53";
  const all = new Resolver({ ...NONE, clusterDns }, open);
  assert.deepEqual(await all.find("app.example", never()), ["10.0.0.1", "10.0.0.2", "2001:db8::1"]);
  await all.find("app.example", never());
  assert.deepEqual(reachedAt, [clusterDns], "an answer is kept");
  const ipv4 = new Resolver({ ...NONE, clusterDns, preferIpv4: true }, open);
  assert.deepEqual(await ipv4.find("app.example", never()), ["10.0.0.1", "10.0.0.2"]);
  const disabled = new Resolver({ ...NONE, clusterDns, disableResolver: true }, open);
  assert.equal(await disabled.find("app.example", never()), undefined);
});

test("a thousand dials of one name at once ask once, and one that gives up takes nothing from the others", async (t) => {
  const { open, reachedAt } = await nameServer(t, both);
  const resolver = new Resolver({ ...NONE, clusterDns: "10.96.0.10:53" }, open);
  const hasty = new AbortController();
  const gone = resolver.find("app.example", hasty.signal);
  const others = Array.from({ length: 1_000 }, () => resolver.find("app.example", never()));
  hasty.abort(new Error("the client is gone"));
  await assert.rejects(gone, /the client is gone/);
  for (const addresses of await Promise.all(others)) assert.equal(addresses?.[0], "10.0.0.1");
  assert.deepEqual(reachedAt, ["10.96.0.10:53"]);
});

test("a name server that is silent is asked no more when nobody waits, and fails after some seconds", async (t) => {
  let closed = 0;
  const { open, reachedAt } = await nameServer(t, () => undefined);
  const watched: OpenNameServer = async (server, signal) => {
    const stream = await open(server, signal);
    return stream.on("close", () => closed++);
  };
  const resolver = new Resolver({ ...NONE, clusterDns: "10.96.0.10:53" }, watched);
  const hasty = new AbortController();
  const gone = resolver.find("app.example", hasty.signal);
  await until(() => reachedAt.length === 1);
  hasty.abort(new Error("the client is gone"));
  await assert.rejects(gone, /the client is gone/);
  await until(() => closed === 1);
  await assert.rejects(resolver.find("app.example", never()), { kind: "dns_error", isOfServer: false });
  assert.equal(reachedAt.length, 2);
});

test("a failure of one family leaves the addresses of the other", async (t) => {
  const { open } = await nameServer(t, (_name, type) => (type === "A" ? ["10.0.0.1"] : "SERVFAIL"));
  const resolver = new Resolver({ ...NONE, clusterDns: "10.96.0.10:53" }, open);
  assert.deepEqual(await resolver.find("app.example", never()), ["10.0.0.1"]);
});

for (const [what, answer, kind, isOfServer] of [
  ["does not exist", "NXDOMAIN", "dns_error", false],
  ["has no address", [], "dns_error", false],
  ["is one that the name server fails for", "SERVFAIL", "dns_error", false],
] as const) {
  test(`a name that ${what} is a failure of names, and none of the tunnel`, async (t) => {
    const { open } = await nameServer(t, () => answer);
    const resolver = new Resolver({ ...NONE, clusterDns: "10.96.0.10:53" }, open);
    await assert.rejects(resolver.find("app.example", never()), { kind, isOfServer });
  });
}

test("a name server that closes the connection without an answer counts as away", async (t) => {
  const server = createServer((socket) => socket.end());
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  t.after(() => server.close());
  const { port } = server.address() as { port: number };
  const resolver = new Resolver({ ...NONE, clusterDns: "a:53" }, async () => connect({ port, host: "127.0.0.1" }));
  await assert.rejects(resolver.find("app.example", never()), { isOfServer: true });
});

test("where the cluster's name server fails, this machine's is asked if that is allowed", async () => {
  const options = { ...NONE, clusterDns: "10.96.0.10:53" };
  const lenient = new Resolver({ ...options, resolveFromManagementClusterDns: true }, away);
  assert.ok((await lenient.find("localhost", never()))?.includes("127.0.0.1"));
  await assert.rejects(new Resolver(options, away).find("localhost", never()), /there is no server/);
});

test("by a kubeconfig, names of Services become ClusterIPs, and the cluster's name server is found", async (t) => {
  const stub = await HttpsStub.start(t);
  stub.answer = ({ path }) => {
    const [, namespace, name] = /namespaces\/([^/]*)\/services\/(.*)$/.exec(path) ?? [];
    const address = { "apps/web": "10.96.1.1", "apps/headless": "None", "openshift-dns/dns-default": "10.96.0.10" };
    const clusterIP = address[`${namespace}/${name}` as keyof typeof address];
    return clusterIP === undefined ? { status: 404, body: {} } : { status: 200, body: { spec: { clusterIP } } };
  };
  const { open, reachedAt } = await nameServer(t, both);
  const kubeconfig = await stub.kubeconfig(folderOf(t));
  const resolver = new Resolver({ ...NONE, kubeconfig, resolveFromGuestClusterDns: true, preferIpv4: true }, open);
  const hosts = ["web.apps.svc", "web.apps.svc.cluster.local"];
  for (const found of await Promise.all(hosts.map((host) => resolver.find(host, never())))) {
    assert.deepEqual(found, ["10.96.1.1"]);
  }
  assert.deepEqual(await resolver.find("web.apps.svc", never()), ["10.96.1.1"]);
  assert.equal(stub.asked.length, 1, "dials at the same time share a request, and an answer is kept");
  for (const host of ["headless.apps.svc", "none.apps.svc", "app.example"]) {
    assert.deepEqual(await resolver.find(host, never()), ["10.0.0.1", "10.0.0.2"], host);
  }
  assert.deepEqual(new Set(reachedAt), new Set(["10.96.0.10:53"]));
});
