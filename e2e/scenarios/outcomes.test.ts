import assert from "node:assert/strict";
import { after, before, type TestContext, test } from "node:test";
import type { OutcomeCode } from "../../shared/outcomes.ts";
import { Authority } from "../../shared/pki/certificates.ts";
import type { Stream } from "../../shared/yamux/stream.ts";
import { type CallerTls, type Connection, connectThrough, dialListener } from "../harness/caller.ts";
import { captureLog, type LogLine } from "../harness/log-lines.ts";
import { callerTls } from "../harness/pki-files.ts";
import { scrapeRegistry } from "../harness/scrape.ts";
import { agentCertificate, answering, rawHead, scriptedAgent } from "../harness/scripted-agent.ts";
import { blackHoleTarget } from "../harness/targets/absent.ts";
import type { TargetServer } from "../harness/targets/tcp.ts";
import { refusedTarget } from "../harness/targets.ts";
import { waitFor } from "../harness/wait.ts";
import { startWorld, type World, type WorldOptions } from "../harness/world.ts";

let blackhole: TargetServer;
before(async () => {
  blackhole = await blackHoleTarget();
});
after(() => blackhole[Symbol.asyncDispose]());

/**
 * Every outcome that a caller can meet, from its request to its status line, metric and log line (docs/errors.md).
 * The expected values are written out here: a row of the table that is changed by mistake is seen.
 *
 * Not here, because nothing provokes them yet: `unknown_cluster` and `limited` need several clusters.
 */
interface Row {
  readonly code: OutcomeCode;
  readonly status: number;
  /** The reason phrase, whole: the sentence that a user of kubectl reads. */
  readonly says: RegExp;
  /** RFC 9209 §2.3 error type. */
  readonly proxyError: string;
  /** The value of `reason` that Konnectivity's alerts know. */
  readonly konnectivity: string;
  readonly level: "info" | "warn" | "error";
  readonly world?: WorldOptions<"echo">;
  readonly provoke: (world: AnyWorld, context: TestContext) => Promise<Connection>;
}

type AnyWorld = World<"echo">;

/** Nobody waits longer than a moment where that is what a row is about; the other timeouts are out of its way. */
const BRIEF = { agentWaitMs: 50, agentAckTimeoutMs: 10_000, dialTimeoutMs: 300, connectTimeoutMs: 20_000 } as const;
const NO_AGENT = { agents: 0 } as const;

const ROWS: Readonly<Record<string, Row>> = {
  "a target that refuses": {
    ...{ code: "dial_refused", status: 502, proxyError: "connection_refused", konnectivity: "error_response" },
    ...{ level: "info", says: /^127\.0\.0\.1:\d+ refused the connection: check that something listens there$/ },
    provoke: async (world) => world.connect((await refusedTarget()).address),
  },
  "a name that does not resolve": {
    ...{ code: "dial_name", status: 502, proxyError: "dns_error", konnectivity: "error_response" },
    ...{
      level: "info",
      says: /^(no such host: )?"?.*no-such-host\.invalid.* does not resolve at the agent: check the name and .*DNS$/,
    },
    world: { server: { dialTimeoutMs: 5_000, connectTimeoutMs: 8_000 } },
    provoke: (world) => world.connect("no-such-host.invalid:443"),
  },
  "a target without a route": {
    ...{ code: "dial_unreachable", status: 502, proxyError: "destination_ip_unroutable" },
    ...{
      konnectivity: "error_response",
      level: "info",
      says: /^255\.255\.255\.255:80 cannot be reached: check the agent's routes \(.*\)$/,
    },
    provoke: (world) => world.connect("255.255.255.255:80"),
  },
  "a target that swallows SYN": {
    ...{ code: "dial_timeout", status: 504, proxyError: "connection_timeout", konnectivity: "backend_dial_timeout" },
    ...{
      level: "info",
      says: /^127\.0\.0\.1:\d+ did not answer within 0\.3 s: check firewalls and network policies on the way$/,
    },
    provoke: async (world) => {
      const connection = await world.connect(blackhole.address);
      assert.ok(connection.answeredMs >= 290, `${connection.answeredMs} ms`);
      return connection;
    },
  },
  "a target that resets the dial": {
    ...{ code: "dial_reset", status: 502, proxyError: "connection_terminated", konnectivity: "error_response" },
    ...{ level: "info", says: /^10\.0\.0\.1:443 reset the connection$/ },
    world: NO_AGENT,
    provoke: viaAgent(answering(rawHead('{"error":"dial_reset","detail":"10.0.0.1:443 reset the connection"}'))),
  },
  "a target that the agent may not dial": {
    ...{ code: "forbidden", status: 403, proxyError: "http_request_denied", konnectivity: "unknown" },
    level: "warn",
    says: /^169\.254\.169\.254:80 may not be dialled: link-local addresses are refused unless --allow-target names them$/,
    provoke: (world) => world.connect("169.254.169.254:80"),
  },
  "a target without a port": {
    ...{ code: "bad_target", status: 400, proxyError: "http_request_error", konnectivity: "unknown" },
    ...{ level: "info", says: /^the target "nowhere" has no port: write host:port, for example 10\.0\.0\.1:10250$/ },
    provoke: (world) => world.connect("nowhere"),
  },
  "a caller without a certificate": {
    ...unauthenticated(/^no client certificate was sent, or none of a CA that is accepted here$/),
    provoke: (world) => asCaller(world, { ca: callerTls(world.dir.path).ca }),
  },
  "a caller whose certificate comes from another CA": {
    ...unauthenticated(/^the client certificate is not signed by a CA that is accepted here$/),
    provoke: async (world) => {
      const pair = await (await Authority.create("elsewhere")).issue({ cn: "culvert-client", usage: "client" });
      return asCaller(world, { ca: callerTls(world.dir.path).ca, ...pair });
    },
  },
  "an agent's certificate on the callers' port": {
    ...unauthenticated(/^the client certificate is not signed by a CA that is accepted here$/),
    provoke: (world) => asCaller(world, { ca: callerTls(world.dir.path).ca, ...agentCertificate(world) }),
  },
  "an agent's certificate on the callers' port, under a shared CA": {
    ...unauthenticated(/^the client certificate CN=konnectivity-agent is an agent's, not a caller's$/),
    provoke: async (world) => {
      const agent = await world.pki.serverAuthority.issue({ cn: "konnectivity-agent", usage: "client" });
      return asCaller(world, { ca: callerTls(world.dir.path).ca, ...agent });
    },
  },
  "no agent": {
    ...{ code: "no_agent", status: 503, proxyError: "destination_unavailable", konnectivity: "no_agent" },
    ...{
      level: "warn",
      says: /^no agent of cluster "default" is connected: check that one runs, and its log$/,
      world: NO_AGENT,
    },
    provoke: async (world) => {
      const connection = await world.connect("echo");
      assert.ok(connection.answeredMs >= 45, `${connection.answeredMs} ms`);
      return connection;
    },
  },
  "agents that all drain": {
    ...{ code: "draining", status: 503, proxyError: "destination_unavailable", konnectivity: "no_agent" },
    ...{
      level: "info",
      says: /^every agent of cluster "default" is shutting down, and no other is connected: check that one runs$/,
    },
    provoke: async (world) => {
      const held = await world.connect("echo");
      world.agents[0]?.drain();
      await waitFor(() => [...world.server.tunnels.tunnels()].every((tunnel) => tunnel.draining));
      const refused = await world.connect("echo");
      await endQuietly(held, world);
      return refused;
    },
  },
  "more CONNECTs waiting than --max-pending-connects": {
    ...{ code: "overloaded", status: 503, proxyError: "connection_limit_reached", konnectivity: "unknown" },
    ...{ level: "warn", says: /^too many CONNECTs wait for an answer \(1, --max-pending-connects\): try again$/ },
    world: { server: { maxPendingConnects: 1 } },
    provoke: async (world) => {
      const waiting = world.connect(blackhole.address);
      await waitFor(() => world.server.tunnels.clusters.get("default")?.pendingConnects === 1);
      const refused = await world.connect("echo");
      await (await waiting)[Symbol.asyncDispose]();
      return refused;
    },
  },
  "a tunnel that is cut during the dial": {
    ...{ code: "agent_lost", status: 502, proxyError: "connection_terminated", konnectivity: "backend_close" },
    ...{ level: "warn", says: /^the connection to agent "agent-1" was lost$/ },
    world: { relay: true, server: { linkGraceMs: 0, agentWaitMs: 0 } }, // or it might be asked again, when it is back
    provoke: async (world) => {
      const refused = world.connect(blackhole.address);
      await waitFor(() => world.agents[0]?.streamCount === 1);
      world.relay.cut("rst");
      return refused;
    },
  },
  "an agent that does not take the stream": {
    ...{ code: "agent_timeout", status: 504, proxyError: "connection_timeout", konnectivity: "backend_dial_timeout" },
    ...{
      level: "warn",
      says: /^agent "scripted" does not respond: check its process and the path to it$/,
      world: { ...NO_AGENT, server: { agentAckTimeoutMs: 400 } },
    },
    provoke: viaAgent(() => {}),
  },
  "an agent that takes the stream and never answers": {
    ...{ code: "agent_timeout", status: 504, proxyError: "connection_timeout", konnectivity: "backend_dial_timeout" },
    level: "warn",
    says: /^agent "scripted" took the request for 10\.0\.0\.1:443 but did not answer in time$/,
    world: { ...NO_AGENT, server: { connectTimeoutMs: 1_200 } },
    provoke: viaAgent((stream) => stream.accept()),
  },
  "an agent that carries all the streams it may": {
    ...{ code: "agent_exhausted", status: 503, proxyError: "connection_limit_reached" },
    ...{
      konnectivity: "error_response",
      level: "warn",
      says: /^agent "agent-1" takes no more connections: try again, or add agents$/,
    },
    world: { agent: { maxStreams: 1 } },
    provoke: async (world) => {
      const first = await world.connect("echo");
      const refused = await world.connect("echo");
      await endQuietly(first, world);
      return refused;
    },
  },
  "an agent that answers with a code of its own": {
    ...{ code: "internal", status: 500, proxyError: "proxy_internal_error", konnectivity: "unknown" },
    ...{ level: "error", says: /^the agent answered "out_of_coffee": the pot is empty$/, world: NO_AGENT },
    provoke: viaAgent(answering(rawHead('{"error":"out_of_coffee","detail":"the pot is empty"}'))),
  },
};

for (const [what, row] of Object.entries(ROWS)) {
  test(`${what}: ${row.code}, ${row.status}, in a sentence, a metric and one log line`, async (context) => {
    const { log, lines } = captureLog();
    const { server, ...others } = row.world ?? {};
    await using world = await startWorld({
      ...{ targets: ["echo"], log, ...others },
      server: { ...BRIEF, ...server },
    });
    await using refused = await row.provoke(world, context);
    await assertAnswer(refused, row);
    const line = await waitFor(() => endings(lines, row.code)[0], { what: "the log line" });
    assert.equal(endings(lines, row.code).length, 1, "one line for one connection");
    assert.equal(line.level, row.level);
    assert.equal(line.msg, "CONNECT failed");
    if (row.code !== "internal") assert.equal(line["reason"], refused.reason);
    await assertCounted(world, row);
  });
}

async function assertAnswer(refused: Connection, { status, says, proxyError }: Row): Promise<void> {
  assert.equal(refused.status, status, refused.reason);
  assert.match(refused.reason, says);
  // Between error and details: who refused, and what is wrong with a credential.
  const words = refused.headers.get("proxy-status")?.replace(/; (refused-by=agent|fault=certificate_missing)/, "");
  assert.equal(words, `culvert; error=${proxyError}; details="${refused.reason.replaceAll('"', "'")}"`);
  assert.equal(refused.headers.get("connection"), "close");
  assert.equal(refused.headers.has("proxy-authenticate"), status === 407);
  assert.equal(await refused.readAll(), `${refused.reason}\n`, "the body, and then the end");
}

const DEFAULT = { cluster: "default" };

async function assertCounted(world: AnyWorld, { code, konnectivity }: Row): Promise<void> {
  const { registry } = world.server.metrics;
  // All is over when no connection is open: those that a row held as well.
  await waitFor(async () => (await scrapeRegistry(registry)).value("culvert_server_connections", DEFAULT) === 0);
  const metrics = await scrapeRegistry(registry);
  assert.equal(metrics.value("culvert_server_connections_total", { cluster: "default", outcome: code }), 1);
  assert.ok(metrics.value("konnectivity_network_proxy_server_dial_failure_count", { reason: konnectivity }) >= 1);
  assert.equal(metrics.value("culvert_server_pending_opens", DEFAULT), 0);
}

test("a caller that leaves during the dial: caller_gone, no answer, and the dial is given up", async () => {
  const { log, lines } = captureLog();
  await using world = await startWorld({ log });
  const caller = dialListener(world.listener("uds"));
  let answered = 0;
  caller.on("data", (chunk: Buffer) => {
    answered += chunk.length;
  });
  caller.write(`CONNECT ${blackhole.address} HTTP/1.1\r\n\r\n`);
  await waitFor(() => world.agents[0]?.streamCount === 1);
  caller.end(); // before the 200, an end is as good as gone
  await waitFor(() => caller.closed);
  assert.equal(answered, 0);
  await waitFor(() => world.agents[0]?.streamCount === 0);
  assert.equal(endings(lines, "caller_gone").length, 1);
  const metrics = await scrapeRegistry(world.server.metrics.registry);
  assert.equal(metrics.value("culvert_server_connections_total", { cluster: "default", outcome: "caller_gone" }), 1);
  const agent = world.agents[0]?.metrics.registry;
  assert.ok(agent);
  assert.equal((await scrapeRegistry(agent)).value("culvert_agent_pending_dials"), 0);
});

test("a connection that went well is one line and one metric, too", async () => {
  const { log, lines } = captureLog();
  await using world = await startWorld({ targets: ["echo"], log });
  const connection = await world.connect("echo", { via: "tls" });
  await connection.send("twelve bytes");
  await connection.readBytes(12);
  connection.end();
  assert.equal(await connection.readAll(), "");
  const line = await waitFor(() => endings(lines, "ok")[0]);
  const { caller, target, cluster, agent, bytesUp, bytesDown, endedBy } = line;
  assert.deepEqual(
    { caller, target, cluster, agent, bytesUp, bytesDown, endedBy },
    {
      ...{ caller: "CN=culvert-client", target: world.targets.echo.address, cluster: "default", agent: "agent-1" },
      ...{ bytesUp: 12, bytesDown: 12, endedBy: "caller" },
    },
  );
  assert.equal(lines.filter((each) => "outcome" in each).length, 1);
});

function endings(lines: readonly LogLine[], code: string): LogLine[] {
  return lines.filter((line) => line["outcome"] === code);
}

function unauthenticated(says: RegExp): Omit<Row, "provoke"> {
  return {
    ...{ code: "unauthenticated", status: 407, proxyError: "http_request_denied", konnectivity: "unknown" },
    ...{ level: "warn", says, world: NO_AGENT },
  };
}

function asCaller(world: AnyWorld, tls: CallerTls): Promise<Connection> {
  const { callers } = world.server.addresses;
  return connectThrough({ host: "127.0.0.1", port: callers?.port ?? 0, tls }, "10.0.0.1:443");
}

function viaAgent(onStream: (stream: Stream) => void) {
  return async (world: AnyWorld, context: TestContext): Promise<Connection> => {
    const agent = await scriptedAgent(world, { onStream });
    context.after(() => agent[Symbol.asyncDispose]());
    return world.connect("10.0.0.1:443");
  };
}

/** Ends a connection that only stood by, and waits until it was counted as well. */
async function endQuietly(connection: Connection, world: AnyWorld): Promise<void> {
  connection.end();
  await connection.readAll();
  const ok = { cluster: "default", outcome: "ok" };
  const { registry } = world.server.metrics;
  await waitFor(async () => (await scrapeRegistry(registry)).value("culvert_server_connections_total", ok) === 1);
}
