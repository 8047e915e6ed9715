import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import { test } from "node:test";
import { connect as connectTls } from "node:tls";
import type { ServerOptions } from "../../server/options/options.ts";
import { Authority, type CertificateAndKey } from "../../shared/pki/certificates.ts";
import { SUBPROTOCOL } from "../../shared/wire/handshake.ts";
import { connectThrough } from "../harness/caller.ts";
import { captureLog } from "../harness/log-lines.ts";
import { callerTls } from "../harness/pki-files.ts";
import { dialAgentsPort, refusedUpgrade } from "../harness/raw-agent.ts";
import { scrapeRegistry } from "../harness/scrape.ts";
import { type AgentsWorld, agentCertificate, scriptedAgent } from "../harness/scripted-agent.ts";
import { freePort } from "../harness/targets/absent.ts";
import { waitFor, within } from "../harness/wait.ts";
import { startWorld } from "../harness/world.ts";

// ── which targets an agent dials ─────────────────────────────────────────────────────────────────────────────────

const DENIED = /may not be dialled: --deny-target .* covers it/;

test("an agent dials what its rules allow, decided on the address that a name resolves to, and nothing link-local", async () => {
  await using world = await startWorld({ agents: 0, targets: ["echo", "banner"] });
  const [echo, banner] = [world.targets.echo.port, world.targets.banner.port];
  await world.startAgent({ denyTarget: [`127.0.0.1:${banner}`, `[::1]:${banner}`] });
  for (const [target, status, says] of [
    [`127.0.0.1:${echo}`, 200, /./],
    [`localhost:${echo}`, 200, /./],
    [`127.0.0.1:${banner}`, 403, DENIED],
    [`localhost:${banner}`, 403, DENIED],
    [`[::ffff:127.0.0.1]:${banner}`, 403, DENIED],
    ["169.254.169.254:80", 403, /link-local addresses are refused unless --allow-target names them/],
  ] as const) {
    await using connection = await world.connect(target);
    assert.equal(connection.status, status, `${target}: ${connection.reason}`);
    assert.match(connection.reason, says);
  }
});

test("an agent's own listeners are no target, by whatever address they are asked for", async () => {
  await using world = await startWorld({ agents: 0 });
  const port = await freePort();
  const agent = await world.startAgent({ adminServerPort: port, adminBindAddress: "127.0.0.1" });
  await waitFor(() => agent.addresses.admin);
  for (const host of ["127.0.0.1", "0.0.0.0", "[::ffff:127.0.0.1]"]) {
    await using connection = await world.connect(`${host}:${port}`);
    assert.equal(connection.status, 403, connection.reason);
    assert.match(connection.reason, /it is a listener of the agent itself$/);
  }
});

test("a CONNECT that leads back to the server's own callers' port is refused, and its health port is a target", async () => {
  await using world = await startWorld({});
  const { callers, health } = world.server.addresses;
  for (const host of ["127.0.0.1", "localhost", "[::ffff:127.0.0.1]"]) {
    await using connection = await world.connect(`${host}:${callers?.port}`);
    assert.equal(connection.status, 403, connection.reason);
    assert.match(connection.reason, /^the target has the address of this server's own port for callers/);
  }
  await using other = await world.connect(`127.0.0.1:${health?.port}`);
  assert.equal(other.status, 200, other.reason);
});

// ── who may be an agent ──────────────────────────────────────────────────────────────────────────────────────────

interface Admission {
  readonly certificate: (world: AgentsWorld) => Promise<CertificateAndKey | undefined>;
  readonly path?: string;
  readonly subprotocols?: string[];
  readonly server?: Partial<ServerOptions>;
  readonly status: number;
  readonly says: RegExp;
}

const asAgent = async (world: AgentsWorld) => agentCertificate(world);
const issued = (cn: string) => (world: AgentsWorld) => world.pki.clusterAuthority.issue({ cn, usage: "client" });

const ADMISSIONS: Readonly<Record<string, Admission>> = {
  "without a certificate": {
    ...{
      certificate: async () => undefined,
      status: 401,
      says: /no client certificate was sent, or none of a CA that is accepted here/,
    },
  },
  "with a certificate of another CA": {
    certificate: async () => (await Authority.create("elsewhere")).issue({ cn: "culvert-agent", usage: "client" }),
    ...{ status: 401, says: /is not signed by a CA that is accepted here/ },
  },
  "with a caller's certificate": {
    certificate: (world) => world.pki.serverAuthority.issue({ cn: "culvert-client", usage: "client" }),
    ...{ status: 401, says: /is not signed by a CA that is accepted here/ },
  },
  "with an expired certificate": {
    certificate: (world) =>
      world.pki.clusterAuthority.issue({
        ...{ cn: "culvert-agent", usage: "client" },
        ...{ notBefore: new Date(Date.now() - 2_000_000), notAfter: new Date(Date.now() - 1_000_000) },
      }),
    ...{ status: 401, says: /the client certificate expired on \d{4}-\d\d-\d\dT/ },
  },
  "with a certificate for servers": {
    certificate: (world) => world.pki.clusterAuthority.issue({ cn: "culvert-agent", usage: "server" }),
    ...{ status: 401, says: /lacks clientAuth/ },
  },
  "with the name of Konnectivity's callers": {
    certificate: issued("konnectivity-client"),
    ...{ status: 403, says: /CN=konnectivity-client is a caller's, not an agent's/ },
  },
  "with a name that is not among --agent-identities": {
    ...{ certificate: asAgent, server: { agentIdentities: ["CN=node-*"] } },
    ...{ status: 403, says: /CN=culvert-agent is not among --agent-identities/ },
  },
  "at another path": {
    certificate: asAgent,
    path: "/elsewhere",
    status: 404,
    says: /agents connect at \/culvert\/v1\/t/,
  },
  "without the subprotocol": {
    ...{ certificate: asAgent, subprotocols: [], status: 426, says: new RegExp(`subprotocol ${SUBPROTOCOL}`) },
  },
  "with another subprotocol": {
    ...{ certificate: asAgent, subprotocols: ["chat"], status: 426, says: new RegExp(`subprotocol ${SUBPROTOCOL}`) },
  },
};

for (const [what, { certificate, status, says, server = {}, ...request }] of Object.entries(ADMISSIONS)) {
  test(`an upgrade ${what} is refused by ${status} before it is one, and said in log and metric`, async () => {
    const { log, lines } = captureLog();
    await using world = await startWorld({ agents: 0, log, server });
    const answer = await refusedUpgrade(world, await certificate(world), request);
    assert.equal(answer.status, status);
    assert.match(answer.body, says);
    assert.match(answer.body, /^[\x20-\x7e]+\n$/, "one line");
    const line = await waitFor(() => lines.find(({ msg }) => msg === "agent refused"));
    assert.equal(`${line["reason"]}\n`, answer.body);
    const metrics = await scrapeRegistry(world.server.metrics.registry);
    assert.equal(metrics.value("culvert_server_agents_refused_total", { cluster: "default", code: String(status) }), 1);
    assert.equal(world.server.tunnels.clusters.get("default")?.tunnels().size, 0);
  });
}

test("a GET on the agents' port, as of a browser or a load balancer's probe, is told what the port is", async () => {
  await using world = await startWorld({ agents: 0 });
  for (const [certificate, status] of [
    [agentCertificate(world), 426],
    [undefined, 401],
  ] as const) {
    const socket = await dialAgentsPort(world, certificate);
    let heard = "";
    socket
      .on("error", () => {})
      .on("data", (chunk: Buffer) => {
        heard += chunk.toString("latin1");
      });
    socket.write("GET /culvert/v1/tunnel HTTP/1.1\r\nHost: x\r\n\r\n");
    await waitFor(() => socket.readableEnded);
    assert.match(heard, new RegExp(`^HTTP/1\\.1 ${status} `));
  }
});

test("under one CA for both ports, --caller-identities and --agent-identities keep the roles apart", async () => {
  await using world = await startWorld({ agents: 0 });
  const ca = await Authority.create("shared");
  const caller = await ca.issue({ cn: "kube-apiserver", o: ["callers"], usage: "client" });
  const agent = await ca.issue({ cn: "node-1", o: ["agents"], usage: "client" });
  const file = world.dir.file("shared-ca.crt");
  writeFileSync(file, ca.cert);
  world.server.destroy(new Error("starts again with one CA"));
  await world.startServer({
    ...{ serverCaCert: file, clusterCaCert: file },
    ...{ callerIdentities: ["O=callers"], agentIdentities: ["O=agents,CN=node-*"] },
  });
  const asCaller = (identity: CertificateAndKey) => {
    const { ca: serverCa } = callerTls(world.dir.path);
    const port = world.server.addresses.callers?.port ?? 0;
    return connectThrough({ host: "127.0.0.1", port, tls: { ca: serverCa, ...identity } }, "10.0.0.1:443");
  };
  await using tunnel = await scriptedAgent(world, { certificate: agent });
  assert.equal((await asCaller(caller)).status, 200);
  const agentAsCaller = await asCaller(agent);
  assert.equal(agentAsCaller.status, 407);
  assert.match(agentAsCaller.reason, /^the client certificate CN=node-1 is not among --caller-identities$/);
  const callerAsAgent = await refusedUpgrade(world, caller);
  assert.equal(callerAsAgent.status, 403);
  assert.match(
    callerAsAgent.body,
    /^the client certificate CN=kube-apiserver,O=callers is not among --agent-identities/,
  );
  assert.equal(tunnel.streams.length, 1);
});

// ── TLS ──────────────────────────────────────────────────────────────────────────────────────────────────────────

test("--tls-min-version and --cipher-suites hold at both ports", async () => {
  const server = { tlsMinVersion: "TLSv1.3" } as const;
  await using world = await startWorld({ agents: 0, server });
  for (const port of ["callers", "agents"] as const) {
    const failed = new Promise<Error>((resolve, reject) => {
      const socket = connectTls({
        ...{ host: "127.0.0.1", port: world.server.addresses[port]?.port ?? 0 },
        ...{ rejectUnauthorized: false, maxVersion: "TLSv1.2" },
      });
      socket.on("error", resolve).on("secureConnect", () => reject(new Error("TLS 1.2 was spoken")));
    });
    assert.match((await within(failed, 3_000, "a refusal")).message, /alert protocol version|version/);
  }
});
