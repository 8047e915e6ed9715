import assert from "node:assert/strict";
import { X509Certificate } from "node:crypto";
import { test } from "node:test";
import { until } from "../shared/basics/testing/wait.ts";
import { encodeProxyV2 } from "../shared/listen/preface.ts";
import { fetchText, type TestServer } from "./testing/server.ts";
import { answerOf, callerAt, callerBehind, Tenants, unixCallerAt } from "./testing/tenants.ts";

const GET = "GET / HTTP/1.1\r\nHost: x\r\n\r\n";
const PREFACE = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/** The newest refusal in the log and in `/status`. */
async function toldOf(server: TestServer, msg: string) {
  await until(() => server.lines.some((line) => line.msg === msg));
  const { caller, remote, reason } = server.lines.findLast((line) => line.msg === msg) ?? assert.fail();
  const { clusters } = JSON.parse((await fetchText(server.addresses.admin?.port, "/status")).text);
  return { caller, remote, reason, from: clusters[0].refusals[0]?.from };
}

test("a caller whose certificate is refused is logged with subject, issuer and serial number of it", async () => {
  await using tenants = await Tenants.create(["blue", "red"]);
  const server = await tenants.start();
  const { caller: stranger } = tenants.get("red");
  assert.match(await answerOf(await callerAt(server, "blue.example", stranger)), /^HTTP\/1.1 407 /);
  await until(() => server.lines.some(({ msg }) => msg === "CONNECT failed"));
  const line = server.lines.find(({ msg }) => msg === "CONNECT failed");
  const { issuer, serialNumber } = new X509Certificate(stranger.cert);
  assert.equal(line?.["certificate"], `subject CN=kube-apiserver, issuer ${issuer}, serial ${serialNumber}`);
});

test("a CONNECT that no agent was asked for is ended by the server in the log, whatever its outcome", async () => {
  await using tenants = await Tenants.create(["blue"]);
  await tenants.get("blue").write({ suspended: true });
  const server = await tenants.start();
  const { sni, caller } = tenants.get("blue");
  assert.match(await answerOf(await callerAt(server, sni, caller)), /^HTTP\/1.1 403 /);
  const line = () => server.lines.findLast(({ msg }) => msg === "CONNECT failed");
  await until(() => line() !== undefined);
  assert.deepEqual([line()?.["outcome"], line()?.["endedBy"]], ["forbidden", "server"]);
});

test("a caller without a certificate leaves its address in the log and in the status", async () => {
  await using tenants = await Tenants.create(["blue"]);
  const server = await tenants.start();
  assert.match(await answerOf(await callerAt(server, "blue.example", undefined)), /^HTTP\/1.1 407 /);
  const { caller, remote, from } = await toldOf(server, "CONNECT failed");
  assert.equal(caller, "unknown");
  assert.match(String(remote), /^127\.0\.0\.1:\d+$/);
  assert.equal(from, "127.0.0.1");
});

test("one over HTTP/2 leaves the same, and counts", async () => {
  await using tenants = await Tenants.create(["blue"]);
  const server = await tenants.start();
  assert.match(await answerOf(await callerAt(server, "blue.example", undefined), PREFACE), /no client certificate/);
  const { caller, reason, from } = await toldOf(server, "CONNECT failed");
  assert.deepEqual([caller, from], ["unknown", "127.0.0.1"]);
  assert.match(String(reason), /^no client certificate/);
  const text = await server.metrics.registry.metrics();
  const counters = text.split("\n").filter((line) => line.startsWith("culvert_server_connections_total"));
  assert.deepEqual(counters, ['culvert_server_connections_total{cluster="blue",outcome="unauthenticated"} 1']);
});

test("behind a balancer that address is the one that its PROXY header says, beside the name where there is one", async () => {
  await using tenants = await Tenants.create(["blue"]);
  const trust = { proxyProtocolTrustedCidrs: ["127.0.0.1/32"] };
  const server = await tenants.start({ serverProxyProtocol: "required", ...trust });
  const source = { address: "192.0.2.9", port: 4_711 };
  const header = encodeProxyV2({ source, destination: { address: "198.51.100.1", port: 443 } });
  assert.match(await answerOf(await callerBehind(server, header, tenants.get("blue"))), /^HTTP\/1.1 503 no agent/);
  const { remote, from } = await toldOf(server, "CONNECT failed");
  assert.equal(remote, "192.0.2.9:4711");
  assert.equal(from, "CN=kube-apiserver at 192.0.2.9");

  assert.match(await answerOf(await callerBehind(server, header, tenants.get("blue")), GET), /^HTTP\/1.1 405 /);
  assert.equal((await toldOf(server, "request refused")).remote, "192.0.2.9:4711");
});

test("a request that is no CONNECT is reported with its caller, its address and a sentence", async () => {
  await using tenants = await Tenants.create(["blue"]);
  const server = await tenants.start();
  const { sni, caller, uds } = tenants.get("blue");
  const tell = async (socket: Parameters<typeof answerOf>[0]) => {
    await answerOf(socket, GET);
    const { caller, remote, reason } = await toldOf(server, "request refused");
    return { caller, remote: String(remote).replace(/\d+$/, "PORT"), reason };
  };
  const known = await tell(await callerAt(server, sni, caller));
  assert.deepEqual([known.caller, known.remote], ["CN=kube-apiserver", "127.0.0.1:PORT"]);
  assert.match(String(known.reason), /^only CONNECT is served here/);
  const stranger = await tell(await callerAt(server, sni, undefined));
  assert.equal(stranger.remote, "127.0.0.1:PORT");
  assert.match(String(stranger.reason), /^no client certificate/);
  const unix = await tell(await unixCallerAt(uds));
  assert.deepEqual([unix.caller, unix.remote], ["unix", "undefined"], "a unix socket has no address");
});
