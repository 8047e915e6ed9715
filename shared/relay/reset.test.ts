import assert from "node:assert/strict";
import { once } from "node:events";
import { mkdtemp, rm } from "node:fs/promises";
import { type AddressInfo, connect, createServer, type Socket } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Duplex } from "node:stream";
import { before, test } from "node:test";
import tls from "node:tls";
import { Worker } from "node:worker_threads";
import { until } from "../basics/testing/wait.ts";
import { rawSocketOf } from "../node/sockets.ts";
import { Authority, type CertificateAndKey } from "../pki/certificates.ts";
import { endedByReset, resetSocket } from "./reset.ts";

interface Pair extends AsyncDisposable {
  /** The end that is reset, and its peer. */
  readonly ours: Socket;
  readonly peer: Socket;
  readonly seen: string[];
}

let authority: Authority;
let certificate: CertificateAndKey;
before(async () => {
  authority = await Authority.create("ca");
  certificate = await authority.issue({ cn: "server", names: ["localhost"], usage: "server" });
});

async function pair(kind: "tcp" | "tls" | "unix"): Promise<Pair> {
  const dir = await mkdtemp(join(tmpdir(), "culvert-reset-"));
  const server = createServer({ allowHalfOpen: true });
  const secure = tls.createServer(certificate);
  if (kind === "tls") {
    server.on(
      "connection",
      (raw: Socket) =>
        void secure.emit(
          "connection",
          raw.on("error", () => {}),
        ),
    );
  }
  server.listen(kind === "unix" ? { path: join(dir, "s") } : { port: 0, host: "127.0.0.1" });
  await once(server, "listening");
  const accepted = once(kind === "tls" ? secure : server, kind === "tls" ? "secureConnection" : "connection");
  const raw =
    kind === "unix"
      ? connect({ path: join(dir, "s"), allowHalfOpen: true })
      : connect({ port: (server.address() as AddressInfo).port, host: "127.0.0.1", allowHalfOpen: true });
  raw.on("error", () => {});
  const peer = kind === "tls" ? tls.connect({ socket: raw, ca: authority.cert, servername: "localhost" }) : raw;
  const seen: string[] = [];
  peer.on("error", (error: NodeJS.ErrnoException) => seen.push(error.code ?? error.message));
  peer.on("end", () => seen.push(endedByReset(peer) ? "end, in truth a reset" : "end"));
  peer.on("close", () => seen.push("close"));
  const [ours] = (await accepted) as [Socket];
  ours.on("error", () => {});
  return {
    ours,
    peer,
    seen,
    async [Symbol.asyncDispose]() {
      for (const socket of [ours, peer, raw]) socket.destroy();
      server.close();
      await rm(dir, { recursive: true });
    },
  };
}

for (const kind of ["tcp", "tls"] as const) {
  test(`the peer of a reset ${kind} connection sees ECONNRESET and no end`, async () => {
    await using it = await pair(kind);
    it.peer.resume();
    it.ours.write("some bytes");
    await once(it.peer, "data");
    resetSocket(it.ours);
    resetSocket(it.ours);
    await once(it.peer, "close").catch(() => once(it.peer, "close"));
    assert.deepEqual(it.seen, ["ECONNRESET", "close"]);
    assert.equal(it.ours.destroyed, true);
  });

  test(`a ${kind} connection with bytes and an end still to be sent is reset all the same`, async () => {
    await using it = await pair(kind);
    it.peer.pause();
    it.ours.end(Buffer.alloc(20_000_000));
    await sometime();
    resetSocket(it.ours);
    let received = 0;
    it.peer.on("data", (chunk: Buffer) => (received += chunk.length));
    it.peer.resume();
    await until(() => it.seen.length > 0);
    assert.ok(received < 20_000_000);
    assert.match(it.seen[0] ?? "nothing", /^(ECONNRESET|end, in truth a reset)$/);
  });

  test(`a clean end on a ${kind} connection is not taken for a reset`, async () => {
    await using it = await pair(kind);
    it.peer.resume();
    it.ours.end("bye");
    await once(it.peer, "end");
    assert.equal(it.seen[0], "end");
    it.ours.resume();
    it.peer.end();
  });
}

test("a reset is told from an end although the reader was paused when it came", async () => {
  await using it = await pair("tcp");
  it.peer.pause();
  it.ours.write(Buffer.alloc(20_000_000));
  await sometime();
  resetSocket(it.ours);
  await sometime();
  it.peer.resume();
  await Promise.race([once(it.peer, "end"), once(it.peer, "close")]).catch(() => {});
  assert.match(it.seen[0] ?? "nothing", /^(ECONNRESET|end, in truth a reset)$/);
});

test("a unix socket is closed without further bytes", async () => {
  await using it = await pair("unix");
  it.peer.resume();
  resetSocket(it.ours);
  assert.equal(it.ours.destroyed, true);
  await once(it.peer, "end");
  assert.deepEqual(it.seen, ["end"]);
});

test("a reset that a write of TLS itself has consumed is told from an end", async (t) => {
  const { cert, key } = certificate;
  const server = tls.createServer({ cert, key, allowHalfOpen: true });
  t.after(() => server.close());
  await once(server.listen(0, "127.0.0.1"), "listening");
  const { port } = server.address() as AddressInfo;
  const hasReset = new Int32Array(new SharedArrayBuffer(4));
  const client = new Worker(RESETTING_CLIENT, { eval: true, workerData: { port, ca: authority.cert, hasReset } });
  t.after(() => client.terminate());
  // The client's Finished is not read before its reset is there: our tickets, which answer it, meet the reset.
  const [raw] = (await once(server, "connection")) as [Socket];
  while (raw.bytesWritten === 0) await new Promise((resolve) => setImmediate(resolve));
  assert.notEqual(Atomics.wait(hasReset, 0, 0, 10_000), "timed-out");
  const [ours] = (await once(server, "secureConnection")) as [tls.TLSSocket];
  ours.on("error", () => {});
  const wasReset = new Promise<boolean>((resolve) => ours.on("end", () => resolve(endedByReset(ours))));
  await new Promise((resolve) => setImmediate(resolve)); // the tickets go first
  let isDone = false;
  ours.write("an answer", () => {
    isDone = true;
  });
  ours.resume();
  assert.equal(await wasReset, true);
  assert.equal(isDone, false, "the premise: Node says nothing of the answer");
  ours.destroy();
});

/** Resets its connection as soon as it has said its Finished and a word. */
const RESETTING_CLIENT = `
  const { workerData: { port, ca, hasReset } } = require("node:worker_threads");
  const raw = require("node:net").connect(port, "127.0.0.1");
  const socket = require("node:tls").connect({ socket: raw, ca, servername: "localhost" });
  socket.on("secureConnect", () => socket.write("word", () => {
    raw.resetAndDestroy();
    Atomics.store(hasReset, 0, 1);
    Atomics.notify(hasReset, 0);
  }));
`;

test("a connection that is gone while our side is open was reset, whatever is told", async () => {
  await using it = await pair("tls");
  rawSocketOf(it.peer)?.destroy();
  assert.equal(endedByReset(it.peer), true);
});

test("any other Duplex is destroyed, and its end is an end", () => {
  const duplex = new Duplex({ read() {} });
  assert.equal(endedByReset(duplex), false);
  resetSocket(duplex);
  assert.equal(duplex.destroyed, true);
});

/** Long enough to fill the kernel's buffers as a rule; what is asserted holds if they are not, too. */
function sometime(): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, 30));
}

for (const kind of ["tcp", "tls", "unix"] as const) {
  test(`${kind}: a socket whose end is under way is closed by a reset, too`, async () => {
    await using it = await pair(kind);
    it.ours.end();
    await null;
    process.nextTick(() => resetSocket(it.ours));
    await until(() => it.ours.closed);
  });
}
