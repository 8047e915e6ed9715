import assert from "node:assert/strict";
import { once } from "node:events";
import { connect as connectHttp2 } from "node:http2";
import { connect, type Socket } from "node:net";
import { after, before, test } from "node:test";
import { createSite, type Site } from "../harness/binaries.ts";
import { type FaultRelay, startRelay } from "../harness/faults.ts";
import { callerTls, flags } from "../harness/pki-files.ts";
import { type ManagedProcess, startCulvert } from "../harness/processes.ts";
import { callerFiles } from "../harness/sidecar.ts";
import { blackHoleTarget, freePort } from "../harness/targets/absent.ts";
import { bannerTarget, echoTarget, sourceTarget } from "../harness/targets/plain.ts";
import {
  CLOSINGS,
  encodeTransfer,
  play,
  type Transfer,
  type TransferTarget,
  transferTarget,
} from "../harness/transfer.ts";
import { standing, waitFor } from "../harness/wait.ts";

// Rules of the path that scenarios hold within one process, held by processes: those that a runtime decides, by its
// sockets, its TLS, its streams and its timers.

const KIB = 1024;
const MIB = 1024 * KIB;
/** More than sockets, windows and buffers of a path hold. */
const SENT = 48 * MIB;
const DIAL_TIMEOUT_MS = 1_000;

let site: Site;
let server: ManagedProcess;
let relay: FaultRelay;
let agent: ManagedProcess;

before(async () => {
  site = await createSite();
  server = await site.startServer();
  relay = await startRelay({ host: "127.0.0.1", port: site.agentPort });
  agent = await site.startAgent({ dialTimeout: `${DIAL_TIMEOUT_MS}ms` }, { agentPort: relay.port });
});
after(async () => {
  await Promise.all([agent?.kill(), server?.kill(), relay?.[Symbol.asyncDispose]()]);
  site?.[Symbol.dispose]();
});

/** Resolves when both ends have all that was sent, and its end. */
async function carried(socket: Socket, transfer: Transfer, target: TransferTarget): Promise<void> {
  socket.write(encodeTransfer(transfer));
  await Promise.all([play(socket, "caller", transfer), target.outcome(transfer.seed)]);
}

for (const via of ["uds", "tls"] as const) {
  test(`what a target says first, and what a caller says before the answer, arrives: ${via}`, async () => {
    await using speaks = await bannerTarget();
    await using echo = await echoTarget();
    for (let round = 0; round < 5; round++) {
      const [first, early] = await Promise.all([site.open(via, speaks.address), site.open(via, echo.address)]);
      assert.equal(await first.read(), "220 culvert banner\r\n");
      await early.send(`round ${round}`);
      assert.equal(await early.read(), `round ${round}`);
      first.socket.destroy();
      early.socket.destroy();
    }
  });

  test(`each way to close passes both directions whole, half-closed or not: ${via}`, async () => {
    await using target = await transferTarget();
    for (const [seed, closing] of CLOSINGS.entries()) {
      const bytesUp = closing.startsWith("target closes") ? 0 : 256 * KIB;
      const bytesDown = closing.startsWith("caller closes") ? 0 : 256 * KIB;
      const transfer = { seed, closing, bytesUp, bytesDown };
      const { socket } = await site.open(via, target.address);
      await carried(socket, transfer, target);
    }
  });

  test(`a caller that stops reading stops the target, and gets all of it later: ${via}`, async () => {
    await using source = await sourceTarget({ bytes: SENT });
    const { socket } = await site.open(via, source.address);
    socket.pause();
    const sent = () => [...source.sockets()].reduce((sum, { bytesWritten }) => sum + bytesWritten, 0);
    await standing(() => String(sent()), { everyMs: 300 });
    assert.ok(sent() < SENT / 2, `${sent()} bytes have left the target`);
    let taken = 0;
    socket.on("data", ({ length }: Buffer) => (taken += length)).resume();
    await waitFor(() => taken === SENT, { deadlineMs: 60_000, what: "all bytes" });
  });
}

test("a target that resets is a reset for the caller, not an end", async () => {
  await using target = await echoTarget();
  const { socket } = await site.open("tls", target.address);
  const failed = new Promise<string | undefined>((resolve) => {
    socket.once("error", ({ code }: NodeJS.ErrnoException) => resolve(code)).once("end", () => resolve("end"));
  });
  socket.resume();
  for (const each of target.sockets()) each.resetAndDestroy();
  assert.equal(await failed, "ECONNRESET");
});

test("streams outlive cuts of the agent's connection, and lose no byte", async () => {
  await using target = await transferTarget();
  const transfers = Array.from({ length: 2 }, async (_, at) => {
    const transfer = { seed: at, closing: "both at once", bytesUp: 4 * MIB, bytesDown: 4 * MIB } as const;
    const { socket } = await site.open("uds", target.address);
    await carried(socket, transfer, target);
  });
  const cutsBefore = relay.cuts;
  for (const how of ["rst", "fin"] as const) {
    const { forward } = relay.bytes;
    await waitFor(() => relay.bytes.forward > forward + MIB, { what: "some traffic" });
    relay.cut(how);
  }
  await Promise.all(transfers);
  assert.ok(relay.cuts > cutsBefore);
});

test("a dial that nobody answers ends at --dial-timeout, and one that is refused at once", async () => {
  await using hole = await blackHoleTarget();
  const begun = performance.now();
  await assert.rejects(site.open("uds", hole.address), /504/);
  assert.ok(performance.now() - begun >= DIAL_TIMEOUT_MS);
  await assert.rejects(site.open("uds", `127.0.0.1:${await freePort()}`), /502/);
});

for (const via of ["uds", "tls"] as const) {
  test(`CONNECTs over HTTP/2 share a connection, are no flood, and each has its own half-close: ${via}`, async (t) => {
    await using target = await transferTarget();
    const session =
      via === "uds"
        ? connectHttp2("http://localhost", { createConnection: () => connect(site.uds) })
        : connectHttp2(`https://localhost:${site.callerPort}`, callerTls(site.dir.path));
    t.after(() => session.destroy());
    const tunnels = Array.from({ length: 4 }, async (_, at) => {
      const seed = 100 + at;
      const stream = session.request({ ":method": "CONNECT", ":authority": target.address });
      await new Promise<void>((resolve, reject) => {
        stream.once("error", reject).once("response", ({ ":status": status }) => {
          if (status === 200) resolve();
          else reject(new Error(`status ${status}`));
        });
      });
      const closing = "caller ends before the target begins";
      const transfer = { seed, closing, bytesUp: 8 * MIB, bytesDown: KIB } as const;
      await carried(stream as unknown as Socket, transfer, target);
    });
    await Promise.all(tunnels);
  });
}

test("a download through a sidecar is longer than its windows", async () => {
  await using target = await transferTarget();
  const [port, healthPort] = [await freePort(), await freePort()];
  const own = { server: `127.0.0.1:${site.callerPort}`, port, healthPort, healthBindAddress: "127.0.0.1" };
  await using sidecar = startCulvert(["http-proxy", ...flags({ ...own, ...callerFiles(site) })]);
  await sidecar.waitForHealth(`http://127.0.0.1:${healthPort}/readyz`);
  const socket = connect(port, "127.0.0.1");
  socket.write(`CONNECT ${target.address} HTTP/1.1\r\nHost: ${target.address}\r\n\r\n`);
  const [answer] = await once(socket, "data");
  assert.match(String(answer), /^HTTP\/1\.1 200 [^\r]*\r\n\r\n$/);
  const closing = "caller ends before the target begins";
  await carried(socket, { seed: 200, closing, bytesUp: 8 * MIB, bytesDown: 8 * MIB }, target);
});
