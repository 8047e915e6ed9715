import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import type { Line } from "../../server/testing/server.ts";
import { agentAt, answerOf, callerAt, OpenCaller, Tenants } from "../../server/testing/tenants.ts";
import { until } from "../../shared/basics/testing/wait.ts";
import type { CertificateAndKey } from "../../shared/pki/certificates.ts";
import { CloseCode, LinkRefused } from "../../shared/wire/handshake.ts";

/** Claims that the agents of blue may make; agents of the control plane have another certificate. */
const CLAIMS = [
  { identities: ["CN=control-plane"], hosts: ["172.30.1.5"], cidrs: ["172.31.0.0/16"] },
  { identities: ["CN=agent"], defaultRoute: true },
];
const ROUTED = { strategies: ["destHost", "cidr", "defaultRoute"], strictIdentifiers: true, claims: CLAIMS };

let tenants: Tenants;
let control: CertificateAndKey;

before(async () => {
  tenants = await Tenants.create(["blue", "hub", "red"]);
  const blue = tenants.get("blue");
  control = await blue.authority.issue({ cn: "control-plane", o: ["agents:blue"], usage: "client" });
  await blue.write({ agents: ROUTED, callers: { fromClusters: ["hub"] } });
  await tenants.start();
});
after(() => tenants[Symbol.asyncDispose]());

function connect(name: string, target: string): Promise<string> {
  const { sni, caller } = tenants.get(name);
  return callerAt(tenants.server, sni, caller).then((socket) =>
    answerOf(socket, `CONNECT ${target} HTTP/1.1\r\nHost: x\r\n\r\n`),
  );
}

function lines(msg: string): Line[] {
  return tenants.server.lines.filter((line) => line.msg === msg);
}

test("an agent that claims another's host, network, route, id or cluster is refused, and the log says what it wanted", async () => {
  const { server } = tenants;
  const blue = tenants.get("blue");
  const holder = await agentAt(server, "control", {
    at: blue,
    by: control,
    agentId: "cp",
    identifiers: "ipv4=172.30.1.5",
  });
  const node = { at: blue, by: blue.agent, agentId: "node" };
  const cases = [
    [{ ...node, identifiers: "ipv4=172.30.1.5" }, CloseCode.forbidden, /may not claim 172\.30\.1\.5 in cluster "blue"/],
    [{ ...node, identifiers: "ipv6=::ffff:172.30.1.5" }, CloseCode.forbidden, /may not claim 172\.30\.1\.5 in/],
    [{ ...node, identifiers: "cidr=172.31.7.0/24" }, CloseCode.forbidden, /may not claim 172\.31\.7\.0\/24 in/],
    [
      { ...node, by: control, identifiers: "cidr=172.16.0.0/12" },
      CloseCode.forbidden,
      /may not claim 172\.16\.0\.0\/12 in/,
    ],
    [
      { ...node, by: control, identifiers: "default-route=true" },
      CloseCode.forbidden,
      /may not claim the default route in/,
    ],
    [{ ...node, agentId: "cp" }, CloseCode.duplicate, /agent id "cp" belongs to another certificate/],
    [{ ...node, cluster: "red" }, CloseCode.forbidden, /belongs to cluster "blue", not to "red"/],
  ] as const;
  for (const [words, closeCode, reason] of cases) {
    const before = lines("agent refused").length;
    await assert.rejects(
      agentAt(server, "forged", words),
      (error) => error instanceof LinkRefused && error.closeCode === closeCode && reason.test(error.reason),
      String(reason),
    );
    await until(() => lines("agent refused").length > before);
    const line = lines("agent refused").at(-1);
    assert.deepEqual([line?.level, line?.["cluster"], line?.["code"]], ["warn", "blue", closeCode]);
    assert.match(String(line?.["reason"]), reason);
    assert.match(String(line?.["identity"]), /^CN=/);
  }
  assert.match(await connect("blue", "172.30.1.5:443"), /^HTTP\/1\.1 200 .*control$/s);
  holder.session.destroy();
});

test("a claimed target without its agent is refused with a sentence, and asked of no other agent", async () => {
  const { server } = tenants;
  const blue = tenants.get("blue");
  const node = await agentAt(server, "node", {
    at: blue,
    by: blue.agent,
    agentId: "node",
    identifiers: "default-route=true",
  });
  assert.match(await connect("blue", "10.0.0.1:443"), /^HTTP\/1\.1 200 .*node$/s);
  for (const target of ["172.30.1.5:443", "[::ffff:172.31.9.9]:443"]) {
    assert.match(
      await connect("blue", target),
      /^HTTP\/1\.1 503 \S+ is for its own agents alone \(strict identifiers\)/,
    );
  }
  const other = await agentAt(server, "control", {
    at: blue,
    by: control,
    agentId: "cp",
    identifiers: "cidr=172.31.0.0/16",
  });
  assert.match(await connect("blue", "172.31.9.9:443"), /^HTTP\/1\.1 200 .*control$/s);

  // Claims of the control plane become claims of the nodes.
  await blue.write({ agents: { ...ROUTED, claims: [CLAIMS[1]] }, callers: { fromClusters: ["hub"] } });
  await other.closed;
  await until(() =>
    lines("tunnel lost").some(({ reason }) => /may no longer claim 172\.31\.0\.0\/16/.test(String(reason))),
  );
  assert.match(await connect("blue", "10.0.0.1:443"), /^HTTP\/1\.1 200 .*node$/s);
  node.session.destroy();
});

test("callers of another cluster reach a cluster by its name where its document lets them, under the rules of both", async () => {
  const { server } = tenants;
  const [blue, hub, red] = ["blue", "hub", "red"].map((name) => tenants.get(name));
  assert.ok(blue && hub && red);
  await blue.write({ callers: { fromClusters: ["hub"] }, deny: ["blue:22"] });
  await hub.write({ deny: ["blue:23"] });
  const denies = (name: string) =>
    lines("cluster changed").some(({ cluster, changed }) => cluster === name && String(changed).includes("deny"));
  await until(() => denies("blue") && denies("hub"));
  const sessions = [];
  for (const at of [blue, red]) {
    const greeting = at === red ? "red" : undefined;
    sessions.push(await agentAt(server, greeting, { at, by: at.agent, agentId: `of-${at.name}` }));
  }
  const open = await OpenCaller.open(await callerAt(server, hub.sni, hub.caller), "", "Blue.:443");
  await open.echo("through blue");
  assert.match(await connect("hub", "red:443"), /^HTTP\/1\.1 503 no agent of cluster "hub" is connected/);
  assert.match(
    await connect("red", "blue:443"),
    /^HTTP\/1\.1 200 .*red$/s,
    "another cluster's name is a name like others",
  );
  for (const target of ["blue:22", "blue:23"]) {
    assert.match(await connect("hub", target), /^HTTP\/1\.1 403 the rule "deny blue:2\d" of the cluster covers/);
  }

  await blue.write({ callers: {} });
  await open.closed;
  await until(() => lines("connection closed").some(({ targetCluster }) => targetCluster === "blue"));
  const line = lines("connection closed").find(({ targetCluster }) => targetCluster === "blue");
  assert.deepEqual([line?.["cluster"], line?.["agent"], line?.["outcome"]], ["hub", "of-blue", "forbidden"]);
  assert.match(await connect("hub", "blue:443"), /^HTTP\/1\.1 503 no agent of cluster "hub"/);
  for (const { session } of sessions) session.destroy();
});
