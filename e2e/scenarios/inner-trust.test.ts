import assert from "node:assert/strict";
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { describe, type TestContext, test } from "node:test";
import { type Agent, startAgent } from "../../agent/agent.ts";
import { type AgentOptions, agentOptions } from "../../agent/context/options.ts";
import { OpenCaller, Tenants, unixCallerAt } from "../../server/testing/tenants.ts";
import { ISSUER, Issuer, SUBJECT } from "../../server/tokens/testing/tokens.ts";
import { defaultsOf } from "../../shared/config/options.ts";
import { Authority, type CertificateAndKey } from "../../shared/pki/certificates.ts";
import { crlOf } from "../../shared/pki/testing/certificates.ts";
import { captureLog, type LogLine } from "../harness/log-lines.ts";
import { Middlebox } from "../harness/middlebox.ts";
import { TARGETS } from "../harness/targets.ts";
import { waitFor, within } from "../harness/wait.ts";

/** An agent has 10 s to prove itself anew. */
const PROVED = { deadlineMs: 25_000 };

/** A cluster whose agents come through a box that opens TLS. */
async function boxed(t: TestContext) {
  const tenants = await Tenants.create(["blue"]);
  t.after(() => tenants[Symbol.asyncDispose]());
  const blue = tenants.get("blue");
  const file = (name: string) => join(tenants.folder, name);
  // Agents dial an address, and so ask for no name: the one cluster has none.
  const write = (change: object = {}) =>
    blue.write({ agents: { sni: [], innerTls: "auto", ...change }, callers: { sni: [] } });
  await write();
  await writeFile(file("server.ca"), blue.authority.cert);
  const server = await tenants.start({ agentWaitMs: 5_000, linkGraceMs: 30_000 });
  const box = await Middlebox.start(server.addresses.agents?.port ?? 0);
  t.after(() => box[Symbol.asyncDispose]());
  await writeFile(file("outer.ca"), box.authority.cert);

  /** Gives an agent of this name another certificate. */
  const give = async (name: string, { cert, key }: CertificateAndKey) => {
    await writeFile(file(`${name}.key`), key);
    await writeFile(file(`${name}.crt`), cert);
  };
  const begin = async (name: string, more: Partial<AgentOptions> = {}) => {
    const { log, lines } = captureLog();
    const agent: Agent = await startAgent(
      {
        ...defaultsOf(agentOptions),
        allowLoopback: true,
        ...{ agentId: name, healthServerPort: 0, adminServerPort: 0 },
        ...{ proxyServerHost: "127.0.0.1", proxyServerPort: box.port },
        ...{ caCert: file("server.ca"), outerCa: file("outer.ca") },
        ...{ agentCert: file(`${name}.crt`), agentKey: file(`${name}.key`) },
        ...more,
      },
      { log },
    );
    t.after(() => agent.destroy(new Error("the test is over")));
    await within(agent.whenConnected(), 10_000, "the tunnel");
    return lines;
  };
  const lost = (agent: string): LogLine | undefined =>
    server.lines.find((line) => line.msg === "tunnel lost" && line["agent"] === agent);
  return { blue, server, box, file, write, give, begin, lost };
}

/** A stream of a caller, whose bytes come back. */
async function echoing(t: TestContext, uds: string): Promise<(text: string) => Promise<void>> {
  const echo = await TARGETS.echo();
  t.after(() => echo[Symbol.asyncDispose]());
  const caller = await OpenCaller.open(await unixCallerAt(uds), "", echo.address);
  t.after(() => caller.socket.destroy());
  return (text) => caller.echo(text);
}

const refusals = (lines: readonly LogLine[]) => lines.filter(({ msg }) => msg.startsWith("uplink refused"));

describe("the trust of a cluster changes while inner TLS stands", { concurrency: true }, () => {
  test("the CA is another: who has a certificate of it keeps its streams, and who has none goes in time", async (t) => {
    const { blue, server, give, begin, file, lost } = await boxed(t);
    await give("renewed", blue.agent);
    await begin("renewed");
    const echoed = await echoing(t, blue.uds);
    await echoed("before");
    await give("left", blue.agent);
    const left = await begin("left");
    const young = await Authority.create("young");
    await writeFile(file("blue.ca"), young.cert);
    await give("renewed", await young.issue({ cn: "agent", o: ["agents:blue"], usage: "client" }));
    const gone = await waitFor(() => lost("left"), PROVED);
    assert.match(String(gone["reason"]), /the trust of cluster "blue" has changed, .* not come back to prove/);
    await echoed("after");
    assert.equal(lost("renewed"), undefined);
    const opened = server.lines.filter(({ msg, ...line }) => msg === "tunnel opened" && line["agent"] === "renewed");
    assert.equal(opened.length, 1);
    const refused = await waitFor(() => refusals(left)[0]);
    assert.match(String(refused["reason"]), /not signed by a CA/);
  });

  test("certificates end: whose agent has a newer one keeps its streams, and who has none goes", async (t) => {
    const { blue, give, begin, lost } = await boxed(t);
    const notAfter = new Date(Date.now() + 12_000);
    const brief = await blue.authority.issue({ cn: "agent", o: ["agents:blue"], usage: "client", notAfter });
    await give("renewed", brief);
    await begin("renewed");
    const echoed = await echoing(t, blue.uds);
    await echoed("before");
    await give("left", brief);
    await begin("left");
    await give("renewed", blue.agent);
    const gone = await waitFor(() => lost("left"), PROVED);
    assert.match(String(gone["reason"]), /the agent's certificate expired on /);
    await echoed("after");
    assert.equal(lost("renewed"), undefined);
  });

  test("a certificate is revoked: its tunnel goes at once, others notice nothing, and the agent is told why inside", async (t) => {
    const { blue, give, begin, write, lost, file, box } = await boxed(t);
    await give("good", blue.agent);
    await begin("good");
    const echoed = await echoing(t, blue.uds);
    const revoked = await blue.authority.issue({ cn: "revoked", o: ["agents:blue"], usage: "client" });
    await give("bad", revoked);
    const lines = await begin("bad");
    await writeFile(file("blue.crl"), await crlOf(blue.authority, [revoked]));
    await write({ crl: "blue.crl" });
    const gone = await waitFor(() => lost("bad"));
    assert.match(String(gone["reason"]), /the agent's certificate is revoked/);
    const refused = await waitFor(() => refusals(lines)[0]);
    assert.match(String(refused["reason"]), /the client certificate is revoked/);
    await echoed("after");
    assert.equal(lost("good"), undefined);
    assert.doesNotMatch(box.read.toString("latin1"), /revoked/);
  });

  test("an identity is not allowed any more: its tunnel goes at once, and the middlebox is told nothing", async (t) => {
    const { blue, give, begin, write, lost, box } = await boxed(t);
    await give("a", blue.agent);
    const lines = await begin("a");
    await write({ identities: ["O=agents:others"] });
    const gone = await waitFor(() => lost("a"));
    assert.match(String(gone["reason"]), /agents:blue is no longer among agents.identities/);
    const refused = await waitFor(() => refusals(lines)[0]);
    assert.match(String(refused["reason"]), /agents:blue is not among agents.identities/);
    assert.doesNotMatch(box.read.toString("latin1"), /agents:blue|agents.identities/);
  });

  test("inner TLS is not taken any more: tunnels that stand on it go in time", async (t) => {
    const { blue, give, begin, write, lost } = await boxed(t);
    await give("a", blue.agent);
    await begin("a");
    await write({ innerTls: "never" });
    await waitFor(() => lost("a"), PROVED);
  });

  test("another subject's tokens are taken: whose token is none of them goes in time", async (t) => {
    const issuer = await Issuer.create();
    const jwt = { issuer: ISSUER, audience: "culvert", jwks: "blue.jwks", subjects: [SUBJECT] };
    const { begin, write, lost, file, server } = await boxed(t);
    await writeFile(file("blue.jwks"), JSON.stringify(await issuer.keySet()));
    await writeFile(file("token"), await issuer.token());
    await write({ identities: [], token: { jwt } });
    await waitFor(() => server.lines.some(({ msg }) => msg === "cluster changed"));
    await begin("a", { agentCert: "", agentKey: "", serviceAccountTokenPath: file("token") });
    await write({ identities: [], token: { jwt: { ...jwt, subjects: ["system:others"] } } });
    await waitFor(() => lost("a"), PROVED);
  });
});
