import assert from "node:assert/strict";
import { once } from "node:events";
import { connect as dialPlain } from "node:net";
import { networkInterfaces } from "node:os";
import { test } from "node:test";
import { until } from "../../shared/basics/testing/wait.ts";
import { encodeProxyV2 } from "../../shared/listen/preface.ts";
import { Balancer } from "../testing/balancer.ts";
import { bearer, insecurePort, OPEN, request, said, tokenOf, tokensOf, trustTokens } from "../testing/insecure-port.ts";
import { fetchText, within } from "../testing/server.ts";
import { agentAt, Tenants } from "../testing/tenants.ts";

// ── where connections come from ──────────────────────────────────────────────────────────────────────────────────────

const elsewhere = Object.values(networkInterfaces())
  .flatMap((addresses) => addresses ?? [])
  .find(({ internal, family }) => !internal && family === "IPv4")?.address;

test("whoever does not come from a trusted network is cut at once, counted and told of, and holds up nobody", {
  skip: elsewhere === undefined && "this machine has no address but loopback",
}, async () => {
  await using mine = await Tenants.create(["blue"]);
  await trustTokens(mine, "blue");
  const server = await mine.start({
    ...{ agentInsecureBindAddress: "0.0.0.0", agentInsecureTrustedCidrs: ["240.0.0.0/4"] },
    ...{ maxHandshakes: 2, maxWaitingConnections: 2 },
  });
  const port = insecurePort(server);
  const FLOOD = 30;
  const flood = Array.from({ length: FLOOD }, () => said(port, request("Host: blue.example"), elsewhere));
  assert.deepEqual(await Promise.all(flood), Array(FLOOD).fill(""));
  await using front = await Balancer.start(port, ["blue.example"]);
  const token = await tokenOf("blue");
  const agent = await agentAt(server, "blue", { at: mine.get("blue"), token, through: front });
  const metrics = (await fetchText(server.addresses.health?.port, "/metrics")).text;
  assert.match(metrics, /^culvert_server_untrusted_connections_total\{listener="agents-insecure"\} 30$/m);
  assert.doesNotMatch(metrics, /^culvert_server_handshakes_failed_total\{listener="agents-insecure"\}/m);
  const told = server.lines.filter(({ msg }) => /--agent-insecure-trusted-cidrs/.test(msg));
  assert.match(told[0]?.msg ?? "", /^connection dropped before its request/);
  assert.deepEqual(told.map(({ level }) => level).sort(), [...Array(20).fill("debug"), ...Array(10).fill("warn")]);
  agent.session.destroy();
});

test("a source is who the PROXY header says; X-Forwarded-For is nobody's word", async () => {
  await using mine = await Tenants.create(["blue"]);
  await trustTokens(mine, "blue");
  await mine.get("blue").write({ agents: { ...tokensOf("blue"), sourceCIDRs: ["203.0.113.0/24"] } });
  const trusted = { proxyProtocolTrustedCidrs: ["127.0.0.0/8"] };
  const server = await mine.start({ ...OPEN, ...trusted, agentInsecureProxyProtocol: "required" });
  const from = (address: string) =>
    encodeProxyV2({ source: { address, port: 1 }, destination: { address: "192.0.2.1", port: 443 } });
  const asked = request("Host: blue.example", await bearer("blue"), "X-Forwarded-For: 203.0.113.9");
  const port = insecurePort(server);
  assert.equal(await said(port, asked), "", "without a header in front nobody speaks");
  assert.match(
    await said(port, Buffer.concat([from("198.51.100.7"), Buffer.from(asked)])),
    /^HTTP\/1\.1 403 .*not open to 198\.51\.100\.7/s,
  );
  await using front = await Balancer.start(port, ["blue.example"]);
  front.header = from("203.0.113.9");
  const token = await tokenOf("blue");
  const agent = await agentAt(server, "blue", { at: mine.get("blue"), token, through: front });
  assert.ok(server.lines.some(({ msg, remote }) => msg === "tunnel opened" && remote === "203.0.113.9:1"));
  agent.session.destroy();
});

// ── from its start to its end ────────────────────────────────────────────────────────────────────────────────────────

test("the insecure port is reported at the start and in readyz, and closes as the agents' other port does", async () => {
  await using mine = await Tenants.create(["blue"]);
  await trustTokens(mine, "blue");
  const server = await mine.start({ ...OPEN, linkGraceMs: 5_000, drainTimeoutMs: 60_000 });
  const port = insecurePort(server);
  const started = server.lines.find(({ msg }) => msg === "server started");
  assert.equal(started?.["agents-insecure"], `127.0.0.1:${port}`);
  const readyz = async () => (await fetchText(server.addresses.health?.port, "/readyz?verbose")).text;
  assert.match(await readyz(), /\[\+\]listeners ok: .*agents, agents-insecure/);
  const { listeners } = JSON.parse((await fetchText(server.addresses.admin?.port, "/status")).text);
  assert.equal(listeners["agents-insecure"], `127.0.0.1:${port}`);

  await using front = await Balancer.start(port, ["blue.example"]);
  const agent = await agentAt(server, "blue", { at: mine.get("blue"), token: await tokenOf("blue"), through: front });
  const silent = dialPlain({ port, host: "127.0.0.1" }).on("error", () => {});
  await once(silent, "connect");
  server.drain();
  assert.doesNotMatch(await readyz(), /agents-insecure not open/, "a link may need another carrier");
  await within(server.close(), "the end of a server whose agent is idle");
  await agent.closed;
  await until(() => silent.destroyed);
  const refused = dialPlain({ port, host: "127.0.0.1" });
  const [error] = await once(refused, "error");
  assert.equal(error.code, "ECONNREFUSED");
});

test("a drain that has no link to wait for closes the insecure port at once, and readyz says so", async () => {
  await using mine = await Tenants.create(["blue"]);
  const server = await mine.start(OPEN);
  const port = insecurePort(server);
  server.drain();
  const [error] = await within(once(dialPlain({ port, host: "127.0.0.1" }), "error"), "the end of the port");
  assert.equal(error.code, "ECONNREFUSED");
  const { text } = await fetchText(server.addresses.health?.port, "/readyz?verbose");
  assert.match(text, /\[-\]listeners failed: .*agents not open, agents-insecure not open/);
});
