import assert from "node:assert/strict";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import { type Connection, connectThrough, established } from "../harness/caller.ts";
import { WHOLE_MATRICES } from "../harness/counts.ts";
import { FleetWorld } from "../harness/fleet-world.ts";
import { captureLog, type LogLine } from "../harness/log-lines.ts";
import { NatsServers } from "../harness/nats-servers.ts";
import { Payload } from "../harness/payload.ts";
import { callerTls } from "../harness/pki-files.ts";
import { type SlowLine, startSlowLine } from "../harness/slow-line.ts";
import { echoTarget, sendPayload, sinkTarget, sourceTarget } from "../harness/targets/plain.ts";
import { TempDir } from "../harness/temp.ts";
import { waitFor } from "../harness/wait.ts";
import { startWorld } from "../harness/world.ts";
import { missingProgram } from "../proxies/harness/missing.ts";

const KB = 1_000;
const STALL_MS = 2_000;
/** Of a line with the buffers of a cheap modem. */
const QUEUE_BYTES = 80 * 1024;
/** How long the bulk transfer is measured: several records, and several round trips with the queue that it makes. */
const FOR_MS = 9_000;
/** The part of what the line could carry that must be payload; the rest is TLS, acknowledgements, small CONNECTs. */
const LEAST_SHARE = 0.85;
/** kube-apiserver has its answer within `--connect-timeout`. */
const CONNECT_MS = 8_000;

interface Line {
  readonly kilobytesPerSecond: number;
  readonly bulk: "download" | "upload";
  readonly port: "agents" | "callers" | "peers";
  readonly inner?: true;
  /** Loss-like stalls of 2 s in the direction of the bulk. */
  readonly stalls?: true;
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
];
const LINES = WHOLE_MATRICES ? ALL : USUAL;

const ARTICLES = { download: "a download", upload: "an upload" } as const;

type Targets = Awaited<ReturnType<typeof startTargets>>;

for (const line of LINES) {
  const { kilobytesPerSecond, bulk, port, inner, stalls } = line;
  const how = `${inner ? "inner TLS" : "TLS"} at the ${port}' port${stalls ? ", with stalls of 2 s" : ""}`;
  const name = `a line of ${kilobytesPerSecond} kB/s carries ${ARTICLES[bulk]} over ${how}`;
  const skip = port === "peers" && missingProgram("nats-server");
  test(`${name}: nobody is cut, and small CONNECTs are answered`, { skip }, (t) => measure(t, line));
}

/** Where callers connect, and what is slow on their way. */
interface Site extends AsyncDisposable {
  readonly slow: SlowLine;
  readonly lines: readonly LogLine[];
  connect(target: string): Promise<Connection>;
}

async function measure(t: TestContext, line: Line): Promise<void> {
  await using targets = await startTargets();
  await using site = line.port === "peers" ? await twoServers(line) : await oneServer(line);
  await using small = new SmallConnects(() => site.connect(targets.echo.address));
  await using transfer = await startBulk(targets, line.bulk, site);
  await waitFor(() => transfer.bytes() > 0, { deadlineMs: 20_000, what: "the first bytes of the transfer" });
  small.start();
  const share = await shareOf(site.slow, line, transfer.bytes);
  await small.stop();
  const cuts = line.port === "callers" ? transfer.cuts() : site.slow.connections - 1;
  const slowest = Math.max(...small.times);
  t.diagnostic(
    `${(100 * share).toFixed(0)} % of what the line could carry; ${cuts} cuts; ` +
      `${small.times.length} small CONNECTs, the slowest in ${slowest.toFixed(0)} ms`,
  );
  assert.equal(cuts, 0, `connections were cut: ${JSON.stringify(site.lines.slice(-10))}`);
  assert.deepEqual(small.failures, []);
  assert.ok(small.times.length > 0, "small CONNECTs were made");
  // A caller's own handshakes wait three times in the queue that bulk of another caller makes on their line.
  const mostMs = line.port === "callers" ? Number.POSITIVE_INFINITY : CONNECT_MS + 1_000;
  assert.ok(slowest <= mostMs, "a small CONNECT took longer than --connect-timeout");
  assert.ok(share >= LEAST_SHARE, `${(100 * share).toFixed(0)} % of what the line could carry arrived`);
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
async function oneServer(line: Line): Promise<Site> {
  const { log, lines } = captureLog();
  const innerTls = line.inner ? "always" : "never";
  const world = await startWorld({ agents: 0, log, server: { innerTls, serverPort: 0 }, agent: { innerTls } });
  const { agents, callers } = world.server.addresses;
  const behind = line.port === "agents" ? agents : callers;
  const slow = await startSlowLine({ host: "127.0.0.1", port: behind?.port ?? 0 }, lineOf(line));
  await world.startAgent(line.port === "agents" ? { proxyServerPort: slow.port } : {});
  const overLine = { host: "127.0.0.1", port: slow.port, tls: callerTls(world.dir.path) };
  return {
    ...{ slow, lines },
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

/** The part of what the line could have carried meanwhile, outside its stalls, that has arrived. */
async function shareOf(slow: SlowLine, line: Line, bytes: () => number): Promise<number> {
  const [before, since] = [bytes(), performance.now()];
  const direction = (line.bulk === "download") === (line.port === "agents") ? "forward" : "backward";
  let stalledMs = 0;
  for (let next = FOR_MS / 3; next <= FOR_MS; next += FOR_MS / 3) {
    await waitFor(() => performance.now() - since >= next + stalledMs, { deadlineMs: 60_000, everyMs: 20 });
    if (line.stalls === undefined || next >= FOR_MS) continue;
    slow.stall(direction, STALL_MS);
    stalledMs += STALL_MS;
  }
  const seconds = (performance.now() - since - stalledMs) / 1_000;
  return (bytes() - before) / (seconds * line.kilobytesPerSecond * KB);
}

/** A transfer without an end. */
async function startBulk({ source, sink }: Targets, bulk: Line["bulk"], site: Site) {
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
