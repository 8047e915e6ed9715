import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, type TestContext, test } from "node:test";
import type { Agent } from "../../agent/agent.ts";
import { type Connection, connectThrough, established } from "../harness/caller.ts";
import { WHOLE_MATRICES } from "../harness/counts.ts";
import { FleetWorld } from "../harness/fleet-world.ts";
import { captureLog, type LogLine } from "../harness/log-lines.ts";
import { NatsServers } from "../harness/nats-servers.ts";
import { Payload } from "../harness/payload.ts";
import { agentFiles, callerTls } from "../harness/pki-files.ts";
import { type SlowLine, startSlowLine } from "../harness/slow-line.ts";
import { echoTarget, sendPayload, sinkTarget, sourceTarget } from "../harness/targets/plain.ts";
import { TempDir } from "../harness/temp.ts";
import { waitFor } from "../harness/wait.ts";
import { startWorld, type World } from "../harness/world.ts";
import { missingProgram } from "../proxies/harness/missing.ts";

const KB = 1_000;
const STALL_MS = 2_000;
/** Of a line with the buffers of a cheap modem. */
const QUEUE_BYTES = 80 * 1024;
/** How long the bulk transfer is measured: several records, and several round trips with the queue that it makes. */
const FOR_MS = 9_000;
/** The part of what the line could carry that must be payload; the rest is TLS, acknowledgements, small CONNECTs. */
const LEAST_SHARE = 0.85;
/**
 * The same with bulk both ways, of both directions together: the acknowledgements of each wait in the queue of the
 * other, and a CONNECT waits in both, so that no more may be under way (decision 0041).
 */
const LEAST_SHARE_OF_BOTH = 0.7;
/** kube-apiserver has its answer within `--connect-timeout`. */
const CONNECT_MS = 8_000;

type Bulk = "download" | "upload";

interface Line {
  readonly kilobytesPerSecond: number;
  readonly bulk: Bulk | "both";
  readonly port: "agents" | "callers" | "peers";
  readonly inner?: true;
  /** Loss-like stalls of 2 s in the direction of the bulk. */
  readonly stalls?: true;
  /** Interval of pings; 2.5 of it without a byte cut a connection, and so do 10 s in which nothing is read. */
  readonly keepaliveMs?: number;
  /** How long the transfer is measured, if it is not `FOR_MS`. */
  readonly forMs?: number;
}

const RATES = [20, 60, 125, 300];
const ALL = RATES.flatMap((kilobytesPerSecond) =>
  (["download", "upload"] as const).flatMap((bulk) =>
    [undefined, true as const].flatMap((stalls): Line[] => {
      const line = { kilobytesPerSecond, bulk, ...(stalls && { stalls }) };
      return [
        { ...line, port: "agents" },
        { ...line, port: "agents", inner: true },
        { ...line, port: "callers" },
        { ...line, port: "peers" },
      ];
    }),
  ),
);
/** At each change: the slowest line with all that makes it hard, and the one on which connections were cut. */
const USUAL: readonly Line[] = [
  { kilobytesPerSecond: 20, bulk: "download", port: "agents", inner: true, stalls: true },
  { kilobytesPerSecond: 125, bulk: "upload", port: "callers" },
  { kilobytesPerSecond: 60, bulk: "both", port: "agents", stalls: true },
  { kilobytesPerSecond: 20, bulk: "download", port: "agents", stalls: true, keepaliveMs: 2_000, forMs: 15_000 },
];
const RARE: readonly Line[] = [
  { kilobytesPerSecond: 20, bulk: "both", port: "agents", forMs: 18_000 },
  { kilobytesPerSecond: 20, bulk: "both", port: "agents", inner: true, forMs: 18_000 },
  // Longer than every deadline with the usual keepalive, and than the window of a stream needs to grow.
  { kilobytesPerSecond: 20, bulk: "download", port: "agents", stalls: true, forMs: 75_000 },
  { kilobytesPerSecond: 20, bulk: "upload", port: "agents", stalls: true, forMs: 75_000 },
];
const LINES = WHOLE_MATRICES ? [...ALL, ...USUAL.slice(2), ...RARE] : USUAL;

const ARTICLES = { download: "a download", upload: "an upload", both: "bulk both ways" } as const;

type Targets = Awaited<ReturnType<typeof startTargets>>;

/** How many lines at once: they wait most of the time. */
const AT_ONCE = { concurrency: 4 };

describe("a slow line: nobody is cut, and small CONNECTs are answered", AT_ONCE, () => {
  for (const line of LINES) {
    const { kilobytesPerSecond, bulk, port, inner, stalls, keepaliveMs, forMs } = line;
    const how = `${inner ? "inner TLS" : "TLS"} at the ${port}' port${stalls ? ", with stalls of 2 s" : ""}`;
    const longer = forMs === undefined ? "" : ` for ${forMs / 1_000} s`;
    const pings = keepaliveMs === undefined ? "" : `, with pings every ${keepaliveMs / 1_000} s`;
    const name = `${kilobytesPerSecond} kB/s with ${ARTICLES[bulk]}${longer} over ${how}${pings}`;
    const skip = port === "peers" && missingProgram("nats-server");
    test(name, { skip }, (t) => measure(t, line));
  }
});

const CHANGES: readonly Line[] = [
  { kilobytesPerSecond: 20, bulk: "download", port: "agents" },
  ...(WHOLE_MATRICES
    ? ([
        { kilobytesPerSecond: 20, bulk: "upload", port: "agents" },
        { kilobytesPerSecond: 20, bulk: "download", port: "agents", inner: true, stalls: true },
        { kilobytesPerSecond: 20, bulk: "upload", port: "agents", inner: true, stalls: true },
      ] as const)
    : []),
];

describe("a slow line that a transfer fills", AT_ONCE, () => {
  for (const line of CHANGES) {
    const how = `${ARTICLES[line.bulk]}, ${line.inner ? "inner TLS" : "TLS"}${line.stalls ? ", stalls of 2 s" : ""}`;
    test(`an agent with another certificate moves to a new connection, and no stream is lost: ${how}`, (t) =>
      change(t, line, "moves"));
    test(`a second agent gets its tunnel behind it, and no stream is lost: ${how}`, (t) => change(t, line, "comes"));
  }
});

/** Where callers connect, and what is slow on their way. */
interface Site extends AsyncDisposable {
  readonly slow: SlowLine;
  readonly lines: readonly LogLine[];
  connect(target: string): Promise<Connection>;
}

interface OneServer extends Site {
  readonly world: World<never>;
  startAgent(wait: boolean): Promise<Agent>;
}

async function measure(t: TestContext, line: Line): Promise<void> {
  await using targets = await startTargets();
  await using site = line.port === "peers" ? await twoServers(line) : await oneServer(line);
  await using small = new SmallConnects(() => site.connect(targets.echo.address));
  await using transfers = await startBulks(targets, line, site);
  small.start();
  const shares = await sharesOf(site.slow, line, transfers);
  await small.stop();
  const cuts = line.port === "callers" ? transfers.cuts() : site.slow.connections - 1;
  const slowest = Math.max(...small.times);
  const percents = shares.map((share) => `${(100 * share).toFixed(0)} %`).join(" and ");
  t.diagnostic(
    `${percents} of what the line could carry; ${cuts} cuts; ` +
      `${small.times.length} small CONNECTs, the slowest in ${slowest.toFixed(0)} ms`,
  );
  assert.equal(cuts, 0, `connections were cut: ${JSON.stringify(site.lines.slice(-10))}`);
  assert.deepEqual(small.failures, []);
  assert.ok(small.times.length > 0, "small CONNECTs were made");
  // A caller's own handshakes wait three times in the queue that bulk of another caller makes on their line.
  const mostMs = line.port === "callers" ? Number.POSITIVE_INFINITY : CONNECT_MS + 1_000;
  assert.ok(slowest <= mostMs, "a small CONNECT took longer than --connect-timeout");
  const share = shares.reduce((sum, each) => sum + each, 0) / shares.length;
  const least = line.bulk === "both" ? LEAST_SHARE_OF_BOTH : LEAST_SHARE;
  assert.ok(share >= least, `${percents} of what the line could carry arrived`);
}

/** The link of an agent changes its carrier, or another agent comes, while a transfer fills the line. */
async function change(t: TestContext, line: Line, what: "moves" | "comes"): Promise<void> {
  await using targets = await startTargets();
  await using site = await oneServer(line);
  const { slow, lines, world } = site;
  await using transfers = await startBulks(targets, line, site);
  const stalls = setInterval(() => line.stalls && stall(slow, line), 3 * STALL_MS);
  const had = (msg: string) => lines.filter((each) => each.msg === msg).length;
  const since = performance.now();
  try {
    if (what === "comes") await site.startAgent(false);
    else await renewAgentCertificate(world);
    const done = what === "comes" ? () => had("tunnel opened") === 2 : () => had("tunnel moved") > 0;
    await waitFor(done, { deadlineMs: 90_000, what: "the new connection" });
    t.diagnostic(`after ${((performance.now() - since) / 1_000).toFixed(1)} s, over ${slow.connections} connections`);
    const before = transfers.each.map(({ bytes }) => bytes());
    const goesOn = () => transfers.each.every(({ bytes }, index) => bytes() > (before[index] ?? 0) + 64 * 1024);
    await waitFor(goesOn, { deadlineMs: 30_000, what: "64 KiB more of the transfer" });
  } finally {
    clearInterval(stalls);
  }
  // A step that a stall makes too late may be tried again.
  const failed = line.stalls || what === "comes" ? 0 : had("uplink not resumed");
  const harm = ["tunnel suspended", "tunnel lost", "tunnel closed"].map(had);
  assert.deepEqual([failed, transfers.cuts(), ...harm], [0, 0, 0, 0, 0], JSON.stringify(lines.slice(-10)));
}

async function renewAgentCertificate({ pki, dir }: World<never>): Promise<void> {
  const { agentCert, agentKey } = agentFiles(dir.path);
  const { cert, key } = await pki.clusterAuthority.issue({ cn: "culvert-agent", usage: "client" });
  writeFileSync(agentKey, key);
  writeFileSync(agentCert, cert);
}

async function startTargets() {
  const [source, sink, echo] = [await sourceTarget(), await sinkTarget(), await echoTarget()];
  const all = [source, sink, echo];
  return {
    ...{ source, sink, echo },
    [Symbol.asyncDispose]: async () => void (await Promise.all(all.map((target) => target[Symbol.asyncDispose]()))),
  };
}

function lineOf({ kilobytesPerSecond }: Line) {
  return { bytesPerSecond: kilobytesPerSecond * KB, queueBytes: QUEUE_BYTES, rttMs: 60 };
}

/** The agent, or callers, are behind the line. */
async function oneServer(line: Line): Promise<OneServer> {
  const { log, lines } = captureLog();
  const innerTls = line.inner ? "always" : "never";
  const common = { innerTls, ...(line.keepaliveMs !== undefined && { keepaliveMs: line.keepaliveMs }) } as const;
  const world = await startWorld({ agents: 0, log, server: { ...common, serverPort: 0 }, agent: common });
  const { agents, callers } = world.server.addresses;
  const behind = line.port === "agents" ? agents : callers;
  const slow = await startSlowLine({ host: "127.0.0.1", port: behind?.port ?? 0 }, lineOf(line));
  const startAgent = (wait: boolean) =>
    world.startAgent(line.port === "agents" ? { proxyServerPort: slow.port } : {}, { wait });
  await startAgent(true);
  const overLine = { host: "127.0.0.1", port: slow.port, tls: callerTls(world.dir.path) };
  return {
    ...{ slow, lines, world, startAgent },
    connect: (target) => (line.port === "agents" ? world.connect(target) : connectThrough(overLine, target)),
    [Symbol.asyncDispose]: async () => {
      await slow[Symbol.asyncDispose]();
      await world[Symbol.asyncDispose]();
    },
  };
}

/** The server with the agent is behind the line, and callers come to the other one. */
async function twoServers(line: Line): Promise<Site> {
  const behind = { host: "127.0.0.1", port: 0 };
  const slow = await startSlowLine(behind, lineOf(line));
  const dir = new TempDir();
  const nats = await NatsServers.start({ dir: dir.path });
  const times = { agentAckTimeoutMs: 2_000, connectTimeoutMs: CONNECT_MS };
  const fleet = await FleetWorld.start(["near"], () => ({ directory: nats.urls(), ...times }));
  const far = await fleet.startServer("far", { peerAddress: `127.0.0.1:${slow.port}` });
  behind.port = far.addresses.peers?.port ?? 0;
  await fleet.untilConnected("near", "far");
  await fleet.startAgent("far");
  await waitFor(() => fleet.reaches("near"), { deadlineMs: 10_000 });
  return {
    ...{ slow, lines: fleet.lines },
    connect: (target) => connectThrough({ path: join(fleet.dir, "near") }, target),
    [Symbol.asyncDispose]: async () => {
      await fleet[Symbol.asyncDispose]();
      await slow[Symbol.asyncDispose]();
      await nats[Symbol.asyncDispose]();
      dir[Symbol.dispose]();
    },
  };
}

/** The parts of what the line could have carried meanwhile, outside its stalls, that have arrived. */
async function sharesOf(slow: SlowLine, line: Line, { each }: Bulks): Promise<number[]> {
  const { forMs = FOR_MS, kilobytesPerSecond, stalls } = line;
  const before = each.map(({ bytes }) => bytes());
  const since = performance.now();
  let stalledMs = 0;
  for (let next = forMs / 3; next <= forMs; next += forMs / 3) {
    await waitFor(() => performance.now() - since >= next + stalledMs, { deadlineMs: 120_000, everyMs: 20 });
    if (stalls === undefined || next >= forMs) continue;
    stall(slow, line, stalledMs / STALL_MS);
    stalledMs += STALL_MS;
  }
  const could = ((performance.now() - since - stalledMs) / 1_000) * kilobytesPerSecond * KB;
  return each.map(({ bytes }, index) => (bytes() - (before[index] ?? 0)) / could);
}

/** Nothing passes for 2 s in a direction of the bulk; with bulk both ways, in each of them in turn. */
function stall(slow: SlowLine, { bulk, port }: Line, number = 0): void {
  const stalled = bulk === "both" ? (number % 2 === 0 ? "download" : "upload") : bulk;
  slow.stall((stalled === "download") === (port === "agents") ? "forward" : "backward", STALL_MS);
}

function bulksOf(bulk: Line["bulk"]): readonly Bulk[] {
  return bulk === "both" ? ["download", "upload"] : [bulk];
}

type Bulks = Awaited<ReturnType<typeof startBulks>>;

/** Transfers without an end, whose first bytes have arrived. */
async function startBulks(targets: Targets, line: Line, site: Site) {
  const each: Awaited<ReturnType<typeof startBulk>>[] = [];
  for (const bulk of bulksOf(line.bulk)) each.push(await startBulk(targets, bulk, site));
  await waitFor(() => each.every(({ bytes }) => bytes() > 0), { deadlineMs: 20_000, what: "the first bytes" });
  return {
    each,
    cuts: () => each.reduce((sum, { cuts }) => sum + cuts(), 0),
    [Symbol.asyncDispose]: async () => {
      for (const one of each) await one[Symbol.asyncDispose]();
    },
  };
}

async function startBulk({ source, sink }: Targets, bulk: Bulk, site: Site) {
  const target = bulk === "download" ? source : sink;
  const connection = await established(site.connect(target.address));
  let received = 0;
  let cuts = 0;
  connection.socket.on("close", () => cuts++);
  if (bulk === "download") connection.socket.on("data", (chunk: Buffer) => (received += chunk.length)).resume();
  else sendPayload(connection.socket, new Payload(), Number.POSITIVE_INFINITY);
  return {
    bytes: () => (bulk === "download" ? received : sink.bytes),
    cuts: () => cuts,
    [Symbol.asyncDispose]: () => connection[Symbol.asyncDispose](),
  };
}

/** CONNECTs to an echo target, one after the other, each with a byte there and back. */
class SmallConnects implements AsyncDisposable {
  readonly times: number[] = [];
  readonly failures: string[] = [];
  readonly #connect: () => Promise<Connection>;
  #isOver = false;
  #running: Promise<void> | undefined;

  constructor(connect: () => Promise<Connection>) {
    this.#connect = connect;
  }

  start(): void {
    this.#running = this.#run();
  }

  /** Resolves when the last one is over. */
  async stop(): Promise<void> {
    this.#isOver = true;
    await this.#running;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.stop();
  }

  async #run(): Promise<void> {
    while (!this.#isOver) {
      try {
        await using connection = await this.#connect();
        if (connection.status !== 200) this.failures.push(`${connection.status} ${connection.reason}`);
        else {
          await connection.send("x");
          assert.equal((await connection.readBytes(1)).toString(), "x");
          this.times.push(connection.answeredMs);
        }
      } catch (error) {
        this.failures.push(String(error));
      }
    }
  }
}
