import assert from "node:assert/strict";
import { once } from "node:events";
import { connect, type Socket } from "node:net";
import { duplexPair } from "node:stream";
import { after, before, test } from "node:test";
import { type ConnectionOptions, connect as connectTls, type TLSSocket } from "node:tls";
import { UNRECOGNIZED_NAME_ALERT } from "../../shared/listen/client-hello.ts";
import { extension, helloMessage, inRecords, nodeHello } from "../../shared/listen/testing/client-hello.ts";
import { connectThrough } from "../harness/caller.ts";
import { ClusterAgents } from "../harness/cluster-agents.ts";
import { ClusterFolder } from "../harness/cluster-files.ts";
import { ClusterNetworks } from "../harness/cluster-networks.ts";
import { type ClusterServer, startClusterServer } from "../harness/cluster-server.ts";
import { runConcurrently } from "../harness/concurrently.ts";
import { atFull } from "../harness/counts.ts";
import { fdCount } from "../harness/proc.ts";
import { Random, seedOfRun } from "../harness/random.ts";
import { standing, waitFor, within } from "../harness/wait.ts";

/** The second name is also a property that every object has. */
const NAMES = ["blue", "constructor"] as const;
const ROUNDS = atFull(40, 4);
const MAX_HELLO = 16_384;

let folder: ClusterFolder;
let networks: ClusterNetworks;
let clusters: ClusterServer;
const agents = new ClusterAgents();

before(async () => {
  folder = await ClusterFolder.create(NAMES);
  clusters = await startClusterServer(folder, { handshakeTimeoutMs: 2_000 });
  networks = await ClusterNetworks.create(NAMES.length, (socket, network) => {
    socket.on("data", (question) => socket.end(`${NAMES[network]} hears ${question}`));
  });
  for (const [network, name] of NAMES.entries()) {
    await networks.inside(network, () => agents.start(folder.get(name), clusters.agentPort, "the-same"));
  }
});

after(async () => {
  agents[Symbol.dispose]();
  clusters?.[Symbol.dispose]();
  await networks?.[Symbol.asyncDispose]();
  folder?.[Symbol.dispose]();
});

// ── names that are served, however they come ─────────────────────────────────────────────────────────────────────────

/** How a ClientHello is cut: the size of a record, and of what is written at once. */
const CUTS: readonly (readonly [what: string, record: number, segment: number])[] = [
  ["in 1-byte segments", MAX_HELLO, 1],
  ["in records of 1 byte", 1, 4_096],
  ["in records of 7 bytes, each in segments of 3", 7, 3],
  ["in records of 100 bytes", 100, MAX_HELLO],
];
for (const [what, record, segment] of CUTS) {
  for (const name of NAMES) {
    test(`a ClientHello ${what} leads to its own cluster: ${name}`, async () => {
      for (const version of ["TLSv1.2", "TLSv1.3"] as const) {
        const { sni: servername, ca } = folder.get(name);
        const { cert, key } = await folder.get(name).callerPair;
        const versions = { minVersion: version, maxVersion: version };
        const caller = await cutCaller({ servername, ca, cert, key, ...versions }, record, segment);
        assert.equal(await questionAt(caller), `${name} hears who`, version);
      }
    });
  }
}

test("a ClientHello of almost 16 KiB leads to its own cluster, and one beyond is refused", async () => {
  const { sni: servername, ca } = folder.get("blue");
  const { cert, key } = await folder.get("blue").callerPair;
  // Node adds its own extensions; what is left of 16 KiB goes into one that nobody asks about.
  const sized = (entries: number) => ({
    servername,
    ca,
    cert,
    key,
    ALPNProtocols: Array(entries).fill("x".repeat(99)),
  });
  const length = async (entries: number) => (await nodeHello(sized(entries))).length;
  const perEntry = 100;
  const fits = Math.floor((MAX_HELLO - (await length(1))) / perEntry);
  assert.ok((await length(fits)) > MAX_HELLO - 2 * perEntry && (await length(fits)) <= MAX_HELLO);
  assert.equal(await questionAt(await cutCaller(sized(fits), MAX_HELLO, MAX_HELLO)), "blue hears who");
  assert.equal(await questionAt(await cutCaller(sized(fits), 64, MAX_HELLO)), undefined, "its records make it longer");
  assert.equal(await questionAt(await cutCaller(sized(fits + 4), MAX_HELLO, MAX_HELLO)), undefined);
});

// ── names that are nobody's, and what is no name ─────────────────────────────────────────────────────────────────────

const long = `${"a".repeat(63)}.`.repeat(4);
const NOBODY: Readonly<Record<string, Buffer>> = {
  "no name": inRecords(helloMessage({})),
  "an empty list of names": inRecords(helloMessage({ names: [] })),
  "an empty name": inRecords(helloMessage({ names: [""] })),
  "two names": inRecords(helloMessage({ names: ["blue.example", "constructor.example"] })),
  "the same name twice": inRecords(helloMessage({ names: ["blue.example", "blue.example"] })),
  "two extensions with a name": inRecords(
    helloMessage({
      names: ["blue.example"],
      extensions: [extension(0, Buffer.from("000d00000a7265642e6578616d706c", "hex"))],
    }),
  ),
  "an IPv4 address": inRecords(helloMessage({ names: ["127.0.0.1"] })),
  "an IPv6 address": inRecords(helloMessage({ names: ["::1"] })),
  "a NUL at the end of a name": inRecords(helloMessage({ names: ["blue.example\0"] })),
  "a NUL in a name": inRecords(helloMessage({ names: ["blue.example\0.evil"] })),
  "an overlong name": inRecords(helloMessage({ names: [`${long}blue.example`] })),
  "an overlong label": inRecords(helloMessage({ names: [`${"a".repeat(64)}.blue.example`] })),
  "a name of 16,000 bytes": inRecords(helloMessage({ names: ["a".repeat(16_000)] })),
  "the name __proto__": inRecords(helloMessage({ names: ["__proto__"] })),
  "__proto__ under a served name": inRecords(helloMessage({ names: ["__proto__.example"] })),
  "the name constructor": inRecords(helloMessage({ names: ["constructor"] })),
  "toString.example": inRecords(helloMessage({ names: ["toString.example"] })),
  "a wildcard": inRecords(helloMessage({ names: ["*.example"] })),
  "another type of name": inRecords(helloMessage({ names: ["blue.example"], nameType: 1 })),
};

for (const [what, bytes] of Object.entries(NOBODY)) {
  test(`${what}: the alert unrecognized_name on both ports, in one piece and in 1-byte segments`, async () => {
    for (const port of [clusters.callerPort, clusters.agentPort]) {
      assert.deepEqual(await answerTo(port, bytes, MAX_HELLO), UNRECOGNIZED_NAME_ALERT);
      if (bytes.length < 1_000) assert.deepEqual(await answerTo(port, bytes, 1), UNRECOGNIZED_NAME_ALERT);
    }
  });
}

test("hostile hellos by the hundred, whole, changed and unfinished: the server serves on and holds none of them", async (t) => {
  const seed = seedOfRun();
  t.diagnostic(`CULVERT_E2E_SEED=${seed}`);
  const random = new Random(seed);
  const real = await nodeHello({ servername: "blue.example" });
  // With the server's, which shares the process.
  const before = await standing(() => fdCount(process.pid));
  const cases = Object.values(NOBODY).concat(real);
  await runConcurrently(ROUNDS * cases.length, 32, async (index) => {
    const bytes = Buffer.from(cases[index % cases.length] as Buffer);
    const port = random.pick([clusters.callerPort, clusters.agentPort]);
    for (let changes = random.between(0, 4); changes > 0; changes--) {
      bytes[random.between(0, bytes.length - 1)] = random.between(0, 255);
    }
    const end = random.chance(0.3) ? random.between(1, bytes.length) : bytes.length;
    await leave(port, bytes.subarray(0, end), random.pick([1, 100, MAX_HELLO]), random.pick(["end", "reset", "wait"]));
  });
  for (const name of NAMES) {
    for (const via of ["tls", "uds"] as const) {
      await using caller = await connectThrough(
        await folder.get(name).listener(via, clusters.callerPort),
        networks.target,
      );
      assert.equal(caller.status, 200, caller.reason);
      await caller.send("who");
      assert.equal(await caller.readAll(), `${name} hears who`);
    }
  }
  for (const agent of agents.all) assert.equal(agent.connected, true);
  await waitFor(() => fdCount(process.pid) <= before, {
    deadlineMs: 20_000,
    what: `no more than ${before} descriptors`,
  });
});

// ── helpers ──────────────────────────────────────────────────────────────────────────────────────────────────────────

/** A TLS client whose first message is put into other records, and written piece by piece. */
async function cutCaller(options: ConnectionOptions, record: number, segment: number): Promise<TLSSocket> {
  const [near, far] = duplexPair();
  const raw = connect({ port: clusters.callerPort, host: "127.0.0.1", noDelay: true });
  raw.on("error", () => far.destroy()).on("close", () => far.destroy());
  const socket = connectTls({ ...options, socket: near });
  socket.on("error", () => {});
  const [hello] = (await once(far, "data")) as [Buffer];
  far.pause();
  await once(raw, "connect");
  await write(raw, inRecords(hello.subarray(5), record), segment);
  far.pipe(raw).pipe(far);
  return socket;
}

/** The target's answer to a question; `undefined`: it could not be reached. */
async function questionAt(socket: TLSSocket): Promise<string | undefined> {
  const over = new Promise<void>((resolve) => socket.once("close", () => resolve()));
  const secured = new Promise<true>((resolve) => socket.once("secureConnect", () => resolve(true)));
  if ((await within(Promise.race([secured, over]), 10_000, "the end of the handshake")) !== true) return undefined;
  let said = "";
  let asked = false;
  socket.on("data", (chunk: Buffer) => {
    said += chunk.toString("latin1");
    if (asked || !said.includes("\r\n\r\n")) return;
    asked = true;
    socket.write("who");
  });
  socket.write(`CONNECT ${networks.target} HTTP/1.1\r\nHost: x\r\n\r\n`);
  await within(new Promise((resolve) => socket.once("end", resolve)), 10_000, "the target's end");
  socket.destroy();
  return said.split("\r\n\r\n")[1];
}

/** All that the port says to these bytes, until it hangs up. */
async function answerTo(port: number, bytes: Buffer, segment: number): Promise<Buffer> {
  const socket = connect({ port, host: "127.0.0.1", noDelay: true });
  const parts: Buffer[] = [];
  socket.on("error", () => {}).on("data", (chunk: Buffer) => parts.push(chunk));
  const over = new Promise((resolve) => socket.once("close", resolve));
  await write(socket, bytes, segment);
  await within(over, 10_000, "the port to hang up");
  return Buffer.concat(parts);
}

/** Sends it, and goes: cleanly, at once, or when the server has ended it. */
async function leave(port: number, bytes: Buffer, segment: number, how: "end" | "reset" | "wait"): Promise<void> {
  const socket = connect({ port, host: "127.0.0.1", noDelay: true });
  socket.on("error", () => {}).resume();
  const over = new Promise((resolve) => socket.once("close", resolve));
  await write(socket, bytes, segment);
  if (how === "end") socket.end();
  else if (how === "reset") socket.resetAndDestroy();
  await within(over, 15_000, "the connection to be over").finally(() => socket.destroy());
}

/** In writes of this size, each in a segment of its own. */
async function write(socket: Socket, bytes: Buffer, size: number): Promise<void> {
  for (let at = 0; at < bytes.length && socket.writable; at += size) {
    await new Promise((resolve) => socket.write(bytes.subarray(at, at + size), resolve));
  }
}
