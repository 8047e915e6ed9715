import assert from "node:assert/strict";
import { once } from "node:events";
import { writeFileSync } from "node:fs";
import { createServer } from "node:net";
import { type TestContext, test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { parseTarget } from "../../shared/address/target.ts";
import { LinkServer, testCertificate, welcome } from "../../shared/link/testing/ends.ts";
import { encodeOpen } from "../../shared/wire/stream-head.ts";
import { readAnswer } from "../../shared/wire/testing/answer.ts";
import { Session } from "../../shared/yamux/session.ts";
import type { Stream } from "../../shared/yamux/stream.ts";
import { isInOwnNetwork } from "../harness/own-network.ts";
import { flags } from "../harness/pki-files.ts";
import { startCulvert } from "../harness/processes.ts";
import { GROWTH_MEASURED, ResidentGrowth } from "../harness/resident-growth.ts";
import { listenOnLoopback, TcpTarget } from "../harness/targets/tcp.ts";
import { TARGETS } from "../harness/targets.ts";
import { TempDir } from "../harness/temp.ts";
import { waitFor, within } from "../harness/wait.ts";

const KIB = 1024;
const MIB = 1024 * KIB;
/** The sockets to a target take less than a third of it. */
const INITIAL_WINDOW = 512 * KIB;
/** Bytes that wait for the target: the rest of the window has room for the pieces. */
const FILLING = 450 * KIB;
const SMALL_BUFFERS = { "net.ipv4.tcp_rmem": "4096 32768 65536", "net.ipv4.tcp_wmem": "4096 16384 65536" };
/** With the frame of one byte in front of it, and both headers, about what one TLS record holds. */
const PADDING = Buffer.alloc(16_200, "p");
const ATTACK_BYTES = 200 * MIB;
/**
 * Honest traffic in front of it: V8's young generation grows with the rate of allocation, by up to 32 MiB, whatever is
 * held of it.
 */
const WARM_UP_BYTES = 64 * MIB;

/** Takes connections and reads nothing. */
async function silentTarget(): Promise<TcpTarget> {
  const server = createServer({ pauseOnConnect: true });
  const target = new TcpTarget(server);
  server.on("connection", (socket) => target.track(socket));
  await listenOnLoopback(server);
  return target;
}

async function open(session: Session, target: string): Promise<Stream> {
  const head = encodeOpen({ kind: "connect", target: parseTarget(target), timeoutMs: 5_000, id: "c" });
  const stream = session.open(head).on("error", () => {}) as Stream;
  assert.equal((await readAnswer(stream, 10_000)).ok, true);
  return stream;
}

/** An agent process that has found the test instead of its server. */
async function hostileServer(t: TestContext, dir: TempDir) {
  const { ca, leaf } = await testCertificate();
  const [caCert, agentCert, agentKey] = [dir.file("ca.crt"), dir.file("agent.crt"), dir.file("agent.key")];
  writeFileSync(caCert, ca);
  writeFileSync(agentCert, leaf.cert);
  writeFileSync(agentKey, leaf.key);
  const server = await LinkServer.start({ welcome: () => welcome({ initialWindow: INITIAL_WINDOW }) });
  t.after(() => server[Symbol.asyncDispose]());
  const options = {
    ...{ proxyServerHost: "localhost", proxyServerPort: server.port, serverAddress: "127.0.0.1", allowLoopback: true },
    ...{
      caCert,
      agentCert,
      agentKey,
      agentId: "a1",
      healthServerHost: "127.0.0.1",
      healthServerPort: 0,
      adminServerPort: 0,
    },
  };
  const agent = startCulvert(["agent", ...flags(options)], GROWTH_MEASURED);
  t.after(() => agent.stop());
  await waitFor(() => server.upgraded.length > 0, { deadlineMs: 20_000, what: "the agent" });
  const link = await server.link();
  const windows = { initialWindow: INITIAL_WINDOW };
  const session = new Session("server", link, { onStream: () => {}, onClosed: () => {} }, windows);
  t.after(() => session.destroy());
  return { agent, session };
}

async function attack(t: TestContext): Promise<void> {
  using dir = new TempDir();
  await using stopped = await silentTarget();
  await using sink = await TARGETS.sink();
  await using echo = await TARGETS.echo();
  const { agent, session } = await hostileServer(t, dir);
  const [pieces, padding] = [await open(session, stopped.address), await open(session, sink.address)];
  pieces.write(Buffer.alloc(FILLING));
  await waitFor(() => pieces.writableLength === 0, { what: "the target's sockets to be full" });

  for (let sent = 0; sent < WARM_UP_BYTES; sent += PADDING.length) {
    await new Promise((resolve) => padding.write(PADDING, resolve));
  }
  const growth = await ResidentGrowth.of(agent);
  for (let sent = 0; sent < ATTACK_BYTES; sent += PADDING.length) {
    pieces.write("x");
    await new Promise((resolve) => padding.write(PADDING, resolve)); // each pair of frames goes alone
  }
  t.diagnostic(`grown by ${((await growth.assertBounded(32 * MIB)) / MIB).toFixed(1)} MiB`);
  assert.equal(pieces.writableLength, 0, "all of them were sent");
  const other = await open(session, echo.address);
  other.write("still there");
  const [answer] = await within(once(other, "data"), 5_000, "an echo");
  assert.equal(String(answer), "still there");
}

/** Streams that a server may open; the agent accepts fewer. */
const SYNS = 24_000;
const AT_ONCE = 4_000;

async function openWithoutData(t: TestContext): Promise<void> {
  using dir = new TempDir();
  await using echo = await TARGETS.echo();
  const { agent, session } = await hostileServer(t, dir);
  const growth = await ResidentGrowth.of(agent);
  const streams: Stream[] = [];
  while (streams.length < SYNS) {
    for (let count = 0; count < AT_ONCE; count++) streams.push(session.open().on("error", () => {}) as Stream);
    // Fewer frames a second than end a session.
    await sleep(500);
  }
  const refused = streams.filter((stream) => stream.destroyed).length;
  t.diagnostic(`${refused} of ${SYNS} were refused, grown by ${(await growth.assertBounded(128 * MIB)) / MIB} MiB`);
  assert.ok(refused >= SYNS - 16_384, `${refused} were refused`);
  for (const stream of streams) stream.destroy();
  await waitFor(() => session.streamCount === 0, { what: "the end of all" });
  await open(session, echo.address);
}

if (await isInOwnNetwork(SMALL_BUFFERS)) {
  test(
    "what a hostile server sends byte by byte to a target that has stopped, each in a read of 16 KiB, holds no more than it is",
    attack,
  );
  test("an agent takes 16,384 streams without a byte from a hostile server, and refuses the others", openWithoutData);
}
