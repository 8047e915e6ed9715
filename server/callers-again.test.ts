import assert from "node:assert/strict";
import { once } from "node:events";
import { writeFile } from "node:fs/promises";
import { connect as connectHttp2, constants } from "node:http2";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import { connect as dialTls } from "node:tls";
import { until } from "../shared/basics/testing/wait.ts";
import { Authority, type CertificateAndKey } from "../shared/pki/certificates.ts";
import { agentOf, CONNECT, callerOf, collect, pki, start, type TestServer, within } from "./testing/server.ts";
import { agentAt, callerAt, OpenCaller, type Tenant, Tenants, unixCallerAt } from "./testing/tenants.ts";
import { ISSUER, Issuer, SUBJECT } from "./tokens/testing/tokens.ts";

/** Cluster blue with an agent, and what its document says from then on. */
async function blueWith(callers: object) {
  const tenants = await Tenants.create(["blue"]);
  const blue = tenants.get("blue");
  await blue.write({ callers });
  const server = await tenants.start();
  await agentAt(server, undefined, { at: blue, by: blue.agent });
  const write = (name: string, text: string) => writeFile(join(tenants.folder, name), text);
  return { tenants, blue, server, write };
}

async function opened(server: TestServer, { sni }: Tenant, by?: CertificateAndKey, token?: string) {
  const header = token === undefined ? "" : `Proxy-Authorization: Bearer ${token}\r\n`;
  return await OpenCaller.open(await callerAt(server, sni, by), header);
}

/** Was it reset in time, and why, by the log? */
async function resetReason(server: TestServer, caller: OpenCaller): Promise<string> {
  const error = await within(caller.closed, "the reset");
  assert.equal(error?.code, "ECONNRESET");
  const line = () => server.lines.findLast(({ msg, outcome }) => msg === "connection closed" && outcome !== "ok");
  await until(() => line() !== undefined);
  assert.deepEqual([line()?.["endedBy"], line()?.level], ["server", "warn"]);
  return `${line()?.["outcome"]}: ${line()?.["reason"]}`;
}

test("callers' CAs are others: the open CONNECT of a CA that has gone is reset, others go on, and a unix socket's", async () => {
  const old = await Authority.create("old");
  const young = await Authority.create("young");
  const identities = ["O=callers:blue"];
  const { tenants, blue, server, write } = await blueWith({ identities });
  await using _ = tenants;
  await write("blue.ca2", old.cert + young.cert);
  await blue.write({ callers: { identities, ca: "blue.ca2" } });
  await until(() => server.lines.some(({ msg }) => msg === "cluster changed"));
  const caller = { cn: "kube-apiserver", o: ["callers:blue"], usage: "client" } as const;
  const leaving = await opened(server, blue, await old.issue(caller));
  const staying = await opened(server, blue, await young.issue(caller));
  const unix = await OpenCaller.open(await unixCallerAt(blue.uds));
  for (const open of [leaving, staying, unix]) await open.echo("before");
  await write("blue.ca2", young.cert);
  const reason = await resetReason(server, leaving);
  assert.match(
    reason,
    /^unauthenticated: the client certificate CN=kube-apiserver is not signed by a CA that is still/,
  );
  for (const open of [staying, unix]) await open.echo("after");
  const metrics = await server.metrics.registry.metrics();
  assert.match(metrics, /^culvert_server_connections_withdrawn_total\{cluster="blue"\} 1$/m);
  assert.match(metrics, /^culvert_server_connections_total\{cluster="blue",outcome="unauthenticated"\} 1$/m);
});

test("callers' identities or networks are others: who is not among them is reset, and the rest is not", async () => {
  const { tenants, blue, server } = await blueWith({ identities: ["O=callers:blue", "CN=guest"] });
  await using _ = tenants;
  const guest = await opened(server, blue, await blue.authority.issue({ cn: "guest", usage: "client" }));
  const staying = await opened(server, blue, blue.caller);
  await blue.write({ callers: { identities: ["O=callers:blue"] } });
  const reason = await resetReason(server, guest);
  assert.match(reason, /^unauthenticated: the client certificate CN=guest is not among callers.identities/);
  await staying.echo("after");
  await blue.write({ callers: { identities: ["O=callers:blue"], sourceCIDRs: ["192.0.2.0/24"] } });
  assert.match(await resetReason(server, staying), /^forbidden: .*not open to 127\.0\.0\.1/);
});

/** An HTTP/2 connection of a caller of blue, whose certificate is of a CA in `blue.ca2`. */
async function overHttp2(t: TestContext) {
  const { tenants, blue, server, write } = await blueWith({});
  t.after(() => tenants[Symbol.asyncDispose]());
  await write("blue.ca2", blue.authority.cert + (await Authority.create("old")).cert);
  await blue.write({ callers: { identities: ["O=callers:blue"], ca: "blue.ca2" } });
  await until(() => server.lines.some(({ msg }) => msg === "cluster changed"));
  const socket = await callerAt(server, blue.sni, blue.caller);
  const session = connectHttp2("https://blue", { createConnection: () => socket }).on("error", () => {});
  t.after(() => session.destroy());
  const open = async () => {
    const stream = session.request({ ":method": "CONNECT", ":authority": "10.0.0.1:10250" }).on("error", () => {});
    const [headers] = await within(once(stream, "response"), "an answer");
    return { stream, status: headers[":status"] };
  };
  return { server, session, open, goaway: within(once(session, "goaway"), "GOAWAY"), write, authority: blue.authority };
}

test("an HTTP/2 connection whose certificate is not accepted any more gets GOAWAY when its last CONNECT ends", async (t) => {
  const { session, open, goaway, write } = await overHttp2(t);
  const { stream } = await open();
  assert.equal(session.closed, false);
  await write("blue.ca2", (await Authority.create("young")).cert);
  assert.equal((await goaway)[0], constants.NGHTTP2_NO_ERROR);
  await until(() => stream.closed && session.destroyed);
});

test("one from before the CAs have changed gets it when it asks for one more CONNECT, and what is open goes on", async (t) => {
  const { server, session, open, goaway, write, authority } = await overHttp2(t);
  const { stream } = await open();
  await write("blue.ca2", authority.cert + (await Authority.create("young")).cert);
  await until(() => server.lines.filter(({ msg }) => msg === "cluster changed").length === 2);
  assert.equal((await open()).status, 407);
  assert.equal((await goaway)[0], constants.NGHTTP2_NO_ERROR);
  stream.write("still here");
  assert.equal(String((await within(once(stream, "data"), "the echo"))[0]), "still here");
  stream.end();
  await until(() => session.destroyed);
});

test("a cluster lets in the callers of one other cluster less: theirs are reset, and those of others go on", async () => {
  await using tenants = await Tenants.create(["blue", "hub", "spoke"]);
  const [blue, hub, spoke] = [tenants.get("blue"), tenants.get("hub"), tenants.get("spoke")];
  await blue.write({ callers: { fromClusters: ["hub", "spoke"] } });
  const server = await tenants.start();
  await agentAt(server, undefined, { at: blue, by: blue.agent });
  const from = async ({ sni, caller }: Tenant) => OpenCaller.open(await callerAt(server, sni, caller), "", "blue:443");
  const [leaving, staying] = [await from(hub), await from(spoke)];
  await blue.write({ callers: { fromClusters: ["spoke"] } });
  assert.match(await resetReason(server, leaving), /^forbidden: .* may not reach cluster "blue" any more$/);
  await staying.echo("after");
});

test("other rules for callers' tokens: a token that they do not take is reset, one that they take goes on", async () => {
  const issuer = await Issuer.create();
  const jwt = { issuer: ISSUER, audience: "culvert", jwks: "blue.jwks", subjects: [SUBJECT, "system:guest"] };
  const { tenants, blue, server, write } = await blueWith({});
  await using _ = tenants;
  await write("blue.jwks", JSON.stringify(await issuer.keySet()));
  await blue.write({ callers: { token: { jwt } } });
  await until(() => server.lines.some(({ msg }) => msg === "cluster changed"));
  const guest = await opened(server, blue, undefined, await issuer.token({ sub: "system:guest" }));
  const staying = await opened(server, blue, undefined, await issuer.token());
  const certificate = await opened(server, blue, blue.caller);
  await blue.write({ callers: { token: { jwt: { ...jwt, subjects: [SUBJECT] } } } });
  assert.match(await resetReason(server, guest), /^unauthenticated: .*system:guest/);
  for (const open of [staying, certificate]) await open.echo("after");
  await blue.write({ callers: {} });
  assert.match(await resetReason(server, staying), /^unauthenticated: tokens are not taken here any more/);
  await certificate.echo("at the end");
});

test("a CONNECT that still waits for its answer when its caller's CA goes is refused, and not reset", async () => {
  const identities = ["O=callers:blue"];
  const tenants = await Tenants.create(["blue"]);
  await using _ = tenants;
  const blue = tenants.get("blue");
  const server = await tenants.start({ agentWaitMs: 7_000 });
  const socket = await callerAt(server, blue.sni, blue.caller);
  const reads = collect(socket);
  socket.write(CONNECT);
  await until(() => server.tunnels.clusters.get("blue")?.pendingConnects === 1);
  const other = await Authority.create("other");
  await writeFile(join(tenants.folder, "other.ca"), other.cert);
  await blue.write({ callers: { identities, ca: "other.ca" } });
  await until(() => reads.length > 0);
  assert.match(reads.join(""), /^HTTP\/1\.1 407 the client certificate CN=kube-apiserver is not signed by a CA/);
  socket.destroy();
});

test("the flags' CA for callers is another: the same", async () => {
  const young = await Authority.create("young");
  const caFile = join(pki.folder, "callers-ca.pem");
  await writeFile(caFile, pki.ca.cert + young.cert);
  await using server = await start({ serverCaCert: caFile });
  await agentOf(server);
  const leaving = await OpenCaller.open(await callerOf(server, pki.caller));
  const staying = await OpenCaller.open(await callerOf(server, await young.issue({ cn: "young", usage: "client" })));
  await writeFile(caFile, young.cert);
  assert.match(await resetReason(server, leaving), /CN=kube-apiserver is not signed by a CA/);
  await staying.echo("after");
});

test("an open CONNECT does not end with its caller's certificate, also when it is verified again", async () => {
  const { tenants, blue, server } = await blueWith({});
  await using _ = tenants;
  const notAfter = new Date(Date.now() + 2_000);
  const brief = await blue.authority.issue({ cn: "brief", o: ["callers:blue"], usage: "client", notAfter });
  const open = await opened(server, blue, brief);
  await until(() => Date.now() > notAfter.getTime() + 1_000);
  await blue.write({ callers: { identities: ["O=callers:blue", "CN=more"] } });
  await until(() => server.lines.some(({ msg }) => msg === "cluster changed"));
  await open.echo("after");
  const refused = dialTls({
    port: server.addresses.callers?.port ?? 0,
    servername: blue.sni,
    ...brief,
    rejectUnauthorized: false,
  });
  const reads = collect(refused.on("error", () => {}));
  refused.write(CONNECT);
  await until(() => reads.length > 0);
  assert.match(reads.join(""), /^HTTP\/1\.1 407 the client certificate expired on/);
  refused.destroy();
});

test("a cluster that is known but not served says no", async () => {
  await using server = await start();
  server.tunnels.add("ghost", { serverId: "srv-1", maxAgents: 1, drainTimeoutMs: 1 });
  const response = await fetch(`http://127.0.0.1:${server.addresses.admin?.port}/trial`, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify({ cluster: "ghost", target: "10.0.0.1:443" }),
  });
  const { outcome, sentence } = (await response.json()) as { outcome: string; sentence: string };
  assert.deepEqual([outcome, sentence], ["unknown_cluster", 'there is no cluster "ghost" here']);
});
