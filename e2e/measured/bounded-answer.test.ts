import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import type { ServerStatus } from "../../server/operators/operator-ports.ts";
import { resetSocket } from "../../shared/relay/reset.ts";
import { createSite } from "../harness/binaries.ts";
import { type CallerListener, type Connection, connectThrough, dialListener } from "../harness/caller.ts";
import { atFull, IN_CI } from "../harness/counts.ts";
import type { ManagedProcess } from "../harness/processes.ts";
import { scrapePort } from "../harness/scrape.ts";
import { blackHoleTarget, freePort } from "../harness/targets/absent.ts";
import type { TargetServer } from "../harness/targets/tcp.ts";
import { TARGETS } from "../harness/targets.ts";
import { standing, waitFor } from "../harness/wait.ts";
import { startWorld } from "../harness/world.ts";

/**
 * kube-apiserver sets no deadline on the answer to a CONNECT: what the server says
 * within `--connect-timeout`, whatever agents and targets do, is the only bound there is.
 */
const CONNECTS = atFull(2000);
const VANISHING = atFull(300, 100);
const CONNECT_TIMEOUT_MS = atFull(2_500, 1_200);
const ALLOWED_MS = CONNECT_TIMEOUT_MS + 5_000;

let blackhole: TargetServer;
let echo: TargetServer;
before(async () => {
  [blackhole, echo] = await Promise.all([blackHoleTarget(), TARGETS.echo()]);
});
after(() => Promise.all([blackhole[Symbol.asyncDispose](), echo[Symbol.asyncDispose]()]));

test(`an agent that is stopped in its tracks: ${CONNECTS} CONNECTs are answered within the deadline, and nothing is left`, async (context) => {
  using site = await createSite();
  await using server = await site.startServer({ connectTimeout: `${CONNECT_TIMEOUT_MS}ms` });
  await using agent = await site.startAgent();
  const listener = site.listener("uds");
  await warmUp(listener);
  const baseFds = await standing(() => server.fdCount());

  agent.signal("SIGSTOP");
  const answers = await Promise.all(crowd(CONNECTS, listener, echo.address));
  const slowest = Math.max(...answers.map(({ answeredMs }) => answeredMs));
  context.diagnostic(`the slowest answer came after ${Math.round(slowest)} ms, allowed are ${ALLOWED_MS}`);
  assert.ok(slowest <= ALLOWED_MS, `the slowest answer took ${slowest} ms`);
  assert.deepEqual(tally(answers, legalWithoutAgent), { legal: CONNECTS });
  await closeAll(answers);

  await waitFor(async () => (await scrapePort(site.healthPort)).value("culvert_server_pending_opens") === 0);
  await waitFor(() => server.fdCount() <= baseFds + 2, { what: `about ${baseFds} descriptors` });

  agent.signal("SIGCONT");
  await waitFor(async () => (await attempt(listener, echo.address)) === 200, { what: "the agent to serve again" });
});

test("an agent that is stopped after it took the streams: the same bound, and nothing is left when it wakes", async () => {
  using site = await createSite();
  const serverAdmin = await freePort();
  await using server = await site.startServer({ connectTimeout: `${CONNECT_TIMEOUT_MS}ms`, adminPort: serverAdmin });
  const agentAdmin = await freePort();
  await using agent = await site.startAgent({ adminServerPort: agentAdmin });
  const listener = site.listener("uds");
  await warmUp(listener);

  const count = Math.ceil(CONNECTS / 10);
  const waiting = crowd(count, listener, blackhole.address);
  await waitFor(async () => (await acknowledged(serverAdmin)) === count);
  agent.signal("SIGSTOP");
  const answers = await Promise.all(waiting);
  const slowest = Math.max(...answers.map(({ answeredMs }) => answeredMs));
  assert.ok(slowest <= ALLOWED_MS, `the slowest answer took ${slowest} ms`);
  assert.deepEqual(
    tally(answers, ({ status, reason }) => status === 504 && reason.includes("did not answer in time")),
    { legal: count },
  );
  await closeAll(answers);
  agent.signal("SIGCONT");
  await waitFor(async () => (await pendingDials(agentAdmin)) === 0, { deadlineMs: 15_000 });
  assert.equal(await attempt(listener, echo.address), 200);
  assert.equal(server.running, true);
});

test("a target that swallows SYN is 504 at --dial-timeout, 4 s when nothing is said", IN_CI, async () => {
  await using world = await startWorld();
  for (const [connection, expectedMs] of await Promise.all([
    world.connect(blackhole.address).then((each) => [each, 4_000] as const),
    world.connect(blackhole.address, { via: "tls" }).then((each) => [each, 4_000] as const),
  ])) {
    assert.equal(connection.status, 504, connection.reason);
    assert.match(connection.reason, /did not answer within 4 s: /);
    assert.ok(Math.abs(connection.answeredMs - expectedMs) < 500, `${connection.answeredMs} ms`);
  }
});

for (const how of ["end", "reset"] as const) {
  test(`${VANISHING} callers that ${how} during the dial leave nothing at server and agent 2 s later`, async () => {
    using site = await createSite();
    await using server = await site.startServer();
    const agentAdmin = await freePort();
    await using agent = await site.startAgent({ adminServerPort: agentAdmin });
    const listener = site.listener(how === "end" ? "uds" : "tls");
    await warmUp(listener);
    const base = { server: await standing(() => server.fdCount()), agent: await standing(() => agent.fdCount()) };

    const callers = Array.from({ length: VANISHING }, () => dialListener(listener));
    for (const caller of callers) {
      caller.on("error", () => {}).resume();
      caller.write(`CONNECT ${blackhole.address} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n`);
    }
    await waitFor(async () => (await pendingDials(agentAdmin)) === VANISHING, { what: "every dial under way" });
    assert.ok(agent.fdCount() >= base.agent + VANISHING, "a dial is a descriptor");
    for (const caller of callers) {
      if (how === "end") caller.end();
      else resetSocket(caller);
    }
    const nothingLeft = async () => {
      const { pendingDials: dials, streams } = await agentStatus(agentAdmin);
      const pending = (await scrapePort(site.healthPort)).value("culvert_server_connections");
      return dials === 0 && streams === 0 && pending === 0 && isBack(agent, base.agent) && isBack(server, base.server);
    };
    await waitFor(nothingLeft, { deadlineMs: 15_000, what: "nothing left" });
  });
}

test("while no agent is connected a CONNECT waits for --agent-wait, then receives 503", async () => {
  await using world = await startWorld({ agents: 0, server: { agentWaitMs: 300 } });
  const { status, reason, answeredMs } = await world.connect(echo.address);
  assert.equal(status, 503, reason);
  assert.ok(answeredMs >= 290 && answeredMs < 5_000, `${answeredMs} ms`);
});

test("an agent that connects within --agent-wait gets the CONNECTs that wait", async () => {
  await using world = await startWorld({ agents: 0, server: { agentWaitMs: 5_000 } });
  const waiting = crowd(20, world.listener("uds"), echo.address);
  await waitFor(() => world.server.tunnels.clusters.get("default")?.pendingConnects === 20);
  await world.startAgent();
  const answers = await Promise.all(waiting);
  assert.deepEqual(
    tally(answers, ({ status }) => status === 200),
    { legal: 20 },
  );
  await closeAll(answers);
});

test("--agent-wait never outlives --connect-timeout", async () => {
  await using world = await startWorld({ agents: 0, server: { agentWaitMs: 60_000, connectTimeoutMs: 300 } });
  const { status, answeredMs } = await world.connect(echo.address);
  assert.equal(status, 503);
  assert.ok(answeredMs < 10_000, `${answeredMs} ms`);
});

function crowd(count: number, listener: CallerListener, target: string): Promise<Connection>[] {
  return Array.from({ length: count }, () => connectThrough(listener, target, { deadlineMs: ALLOWED_MS + 5_000 }));
}

/** Whether the outcomes table allows this answer when the only agent does not respond. */
function legalWithoutAgent({ status }: Connection): boolean {
  return status === 502 || status === 503 || status === 504;
}

/** How many answers are as they should be, and what the others say. */
function tally(answers: readonly Connection[], isLegal: (answer: Connection) => boolean): Record<string, number> {
  const counts: Record<string, number> = {};
  for (const answer of answers) {
    const key = isLegal(answer) ? "legal" : `${answer.status} ${answer.reason}`;
    counts[key] = (counts[key] ?? 0) + 1;
  }
  return counts;
}

async function closeAll(connections: readonly Connection[]): Promise<void> {
  await Promise.all(connections.map((each) => each[Symbol.asyncDispose]()));
}

async function attempt(listener: CallerListener, target: string): Promise<number> {
  await using connection = await connectThrough(listener, target);
  return connection.status;
}

/** The first connections load code and open descriptors that stay. */
async function warmUp(listener: CallerListener): Promise<void> {
  for (let i = 0; i < 3; i++) assert.equal(await attempt(listener, echo.address), 200);
}

/** The health port's own connections come and go. */
function isBack(process: ManagedProcess, base: number): boolean {
  return process.fdCount() <= base + 2;
}

/** Streams that the agent has taken, as the server knows it. */
async function acknowledged(port: number): Promise<number> {
  const response = await fetch(`http://127.0.0.1:${port}/status`, { signal: AbortSignal.timeout(1_000) });
  const { clusters } = (await response.json()) as ServerStatus;
  const tunnels = clusters.flatMap((cluster) => cluster.tunnels);
  return tunnels.reduce((sum, { streams, pendingOpens }) => sum + streams - pendingOpens, 0);
}

interface AgentStatus {
  readonly pendingDials: number;
  readonly uplinks: readonly { readonly sessions: readonly { readonly streams: number }[] }[];
}

/** The streams of its sessions, of which the agent's metrics count only those that it has taken. */
async function agentStatus(port: number): Promise<{ readonly pendingDials: number; readonly streams: number }> {
  const response = await fetch(`http://127.0.0.1:${port}/status`, { signal: AbortSignal.timeout(1_000) });
  const { pendingDials, uplinks } = (await response.json()) as AgentStatus;
  const streams = uplinks.flatMap(({ sessions }) => sessions).reduce((sum, session) => sum + session.streams, 0);
  return { pendingDials, streams };
}

async function pendingDials(port: number): Promise<number> {
  return (await agentStatus(port)).pendingDials;
}
