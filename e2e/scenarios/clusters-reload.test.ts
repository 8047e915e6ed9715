import assert from "node:assert/strict";
import { test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { connect as connectTls } from "node:tls";
import { type Connection, connectThrough } from "../harness/caller.ts";
import { ClusterAgents } from "../harness/cluster-agents.ts";
import { type ClusterFiles, ClusterFolder, type DocumentChange, numbered } from "../harness/cluster-files.ts";
import { ClusterNetworks } from "../harness/cluster-networks.ts";
import { startClusterProcess } from "../harness/cluster-processes.ts";
import { atFull, ON_CI } from "../harness/counts.ts";
import { heldBytes, INSPECTED } from "../harness/inspector.ts";
import { Random, seedOfRun } from "../harness/random.ts";
import { waitFor } from "../harness/wait.ts";

const UNTOUCHED = numbered("blue", 8);
const TOUCHED = numbered("red", ON_CI ? 200 : 60);
/** Number of the touched clusters that have an agent, which is sent away and comes back. */
const WITH_AGENT = 6;
const PER_SECOND = 20;
/** Of each of two rounds. */
const SECONDS = atFull(15, 5, 8);
const ECHO_EVERY_MS = 10;
/** Only an echo that hangs takes this long; a busy machine is faster. */
const ECHO_DEADLINE_MS = 30_000;
const MIB = 1_048_576;
/** Bytes that a second round may leave behind. The first one finds out how large everything gets. */
const GROWTH = 8 * MIB;

test("clusters are edited, added and removed 20 times a second: no stream of another ends, and memory stays", async (t) => {
  const seed = seedOfRun();
  t.diagnostic(`CULVERT_E2E_SEED=${seed}`);
  using folder = await ClusterFolder.create([...UNTOUCHED, ...TOUCHED, "last"]);
  await folder.get("last").remove();
  const { server, callerPort, agentPort } = await startClusterProcess(
    folder,
    { drainTimeout: "1s" },
    { nodeArgs: INSPECTED },
  );
  await using _server = server;
  const agentsOf = [...UNTOUCHED, ...TOUCHED.slice(0, WITH_AGENT)];
  await using networks = await ClusterNetworks.create(agentsOf.length, (socket) => socket.pipe(socket));
  using agents = new ClusterAgents();
  for (const [network, name] of agentsOf.entries()) {
    await networks.inside(network, () => agents.start(folder.get(name), agentPort, "node-0"));
  }

  using traffic = new Traffic();
  for (const [index, name] of UNTOUCHED.entries()) {
    const listener = await folder.get(name).listener(index % 2 === 0 ? "tls" : "uds", callerPort);
    traffic.add(await connectThrough(listener, networks.target));
  }

  const round = async (part: number) => {
    await change(folder, new Random(seed + part), SECONDS);
    for (const name of TOUCHED) await folder.get(name).write();
    await seen(folder.get("last"), callerPort);
    return heldBytes(server);
  };
  const first = await round(1);
  const second = await round(2);
  await traffic.finish();
  for (const [index] of UNTOUCHED.entries()) assert.equal(agents.all[index]?.connected, true);
  const errors = server.log.filter((line) => /"level":"(error|fatal)"|^\s+at /.test(line));
  assert.deepEqual(errors, []);
  const said = (bytes: typeof first) => `${Math.round(bytes.heap / MIB)}+${Math.round(bytes.buffers / MIB)} MiB`;
  t.diagnostic(
    `heap+buffers: ${said(first)} after ${SECONDS} s, ${said(second)} after ${2 * SECONDS} s; the slowest echo: ${Math.round(traffic.worstMs)} ms`,
  );
  assert.ok(second.heap - first.heap < GROWTH, `heap+buffers: ${said(first)}, then ${said(second)}`);
  assert.ok(second.buffers - first.buffers < GROWTH, `heap+buffers: ${said(first)}, then ${said(second)}`);
});

// ── helpers ──────────────────────────────────────────────────────────────────────────────────────────────────────────

/**
 * Echoes on streams that last, for as long as the test does. How long one takes is the bench's to measure: here it is a
 * failure when a stream ends, or holds anything but what was sent.
 */
class Traffic implements Disposable {
  readonly #connections: Connection[] = [];
  readonly #streams: Promise<void>[] = [];
  #over = false;
  worstMs = 0;

  add(connection: Connection): void {
    this.#connections.push(connection);
    const stream = this.#echo(connection);
    stream.catch(() => {}); // it is told by `finish`
    this.#streams.push(stream);
  }

  async finish(): Promise<void> {
    this.#over = true;
    await Promise.all(this.#streams);
  }

  [Symbol.dispose](): void {
    this.#over = true;
    for (const { socket } of this.#connections) socket.destroy();
  }

  async #echo(connection: Connection): Promise<void> {
    for (let number = 0; !this.#over; number++) {
      const text = `number ${number}`;
      const sentAt = performance.now();
      await connection.send(text);
      assert.equal((await connection.readBytes(text.length, ECHO_DEADLINE_MS)).toString(), text);
      this.worstMs = Math.max(this.worstMs, performance.now() - sentAt);
      await sleep(ECHO_EVERY_MS);
    }
  }
}

const EDITS: readonly [DocumentChange, ...DocumentChange[]] = [
  { limits: { connectsPerSecond: 50, bytesPerSecond: "1MiB" } },
  { deny: ["10.0.0.0/8"], allow: ["*.example:443"] },
  { agents: { maxAgents: 3 } },
  { callers: { sourceCIDRs: ["127.0.0.0/8"] } },
  { agents: { identities: ["O=agents:another"] } },
  { suspended: true },
  {},
];

/** At a steady pace, whatever the server makes of it. */
async function change(folder: ClusterFolder, random: Random, seconds: number): Promise<void> {
  const begun = performance.now();
  const gone = new Set<string>();
  for (let made = 0; made < seconds * PER_SECOND; made++) {
    await sleep(Math.max(0, begun + (made * 1_000) / PER_SECOND - performance.now()));
    const name = random.pick(TOUCHED as [string, ...string[]]);
    const cluster = folder.get(name);
    if (gone.delete(name)) await cluster.write();
    else if (random.chance(0.3)) {
      gone.add(name);
      await cluster.remove();
    } else if (random.chance(0.2)) await cluster.renewCertificate();
    else await cluster.write(random.pick(EDITS));
  }
}

/** Waits until the server has seen all changes so far: those of a cluster behind them have come and gone. */
async function seen(last: ClusterFiles, port: number): Promise<void> {
  await last.write();
  await waitFor(() => isServed(last, port), { deadlineMs: 30_000, what: "the last cluster to be served" });
  await last.remove();
  await waitFor(async () => !(await isServed(last, port)), { deadlineMs: 30_000, what: "the last cluster to go" });
}

function isServed({ sni: servername }: ClusterFiles, port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = connectTls({ host: "127.0.0.1", port, servername, rejectUnauthorized: false });
    const is = (served: boolean) => () => {
      socket.destroy();
      resolve(served);
    };
    socket.once("secureConnect", is(true)).once("error", is(false)).once("close", is(false));
  });
}
