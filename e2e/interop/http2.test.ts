import assert from "node:assert/strict";
import { execFile, spawn } from "node:child_process";
import { once } from "node:events";
import { createInterface } from "node:readline";
import { buffer, text } from "node:stream/consumers";
import { after, test } from "node:test";
import { connect as connectTls } from "node:tls";
import { promisify } from "node:util";
import { FRAME, FrameReader, PREFACE, settings } from "../../shared/node/testing/http2-frames.ts";
import { callerTls } from "../harness/pki-files.ts";
import { scrapeRegistry } from "../harness/scrape.ts";
import { blackHoleTarget } from "../harness/targets/absent.ts";
import { refusedTarget } from "../harness/targets.ts";
import { waitFor } from "../harness/wait.ts";
import { startWorld, type Via } from "../harness/world.ts";
import { goMissing, goPeerBinary } from "./go-peer.ts";

const HTTP_1_1_REQUIRED = 13;
const MIB = 1024 * 1024;

const skip = goMissing;
const world = await startWorld({ targets: ["echo"] });
after(() => world[Symbol.asyncDispose]());

/** The command line of a caller by x/net/http2. */
async function goCaller(via: Via, ...command: (string | number)[]): Promise<[binary: string, args: string[]]> {
  const { callers, uds } = world.server.addresses;
  const file = (name: string): string => world.dir.file(name);
  const tls = ["-ca", file("server-ca.crt"), "-cert", file("client.crt"), "-key", file("client.key")];
  const server = via === "uds" ? ["-path", String(uds)] : ["-address", `127.0.0.1:${callers?.port}`, ...tls];
  return [await goPeerBinary("go-http2"), [...server, ...command.map(String)]];
}

/** CONNECTs by what has become of them. */
async function counts() {
  const metrics = await scrapeRegistry(world.server.metrics.registry);
  const cluster = "default";
  return {
    ok: metrics.value("culvert_server_connections_total", { cluster, outcome: "ok" }),
    gone: metrics.value("culvert_server_connections_total", { cluster, outcome: "caller_gone" }),
    waiting: metrics.value("culvert_server_pending_opens", { cluster }),
    open: metrics.value("culvert_server_established_connections", { cluster }),
  };
}

for (const via of ["uds", "tls"] as const) {
  test(`x/net/http2 has many CONNECTs on one connection over ${via}, each half-closed and whole`, {
    skip,
  }, async () => {
    const run = await goCaller(via, "echo", world.targets.echo.address, 100, MIB);
    assert.equal((await promisify(execFile)(...run)).stdout, "100 whole on 1 connection\n");
  });

  test(`x/net/http2 reads status, Proxy-Status and sentence of a refused CONNECT over ${via}`, { skip }, async () => {
    await using target = await refusedTarget();
    const { stdout } = await promisify(execFile)(...(await goCaller(via, "refused", target.address)));
    assert.match(stdout, /^502 culvert; error=connection_refused; refused-by=agent; details="[^"]+"\n.*refused.*\n$/);
  });

  test(`a caller of x/net/http2 that is killed leaves neither CONNECTs nor dials behind over ${via}`, {
    skip,
  }, async () => {
    await using nobody = await blackHoleTarget();
    const { echo } = world.targets;
    const [binary, args] = await goCaller(via, "hold", echo.address, 50, nobody.address);
    const before = await counts();
    const child = spawn(binary, args, { stdio: ["ignore", "pipe", "inherit"] });
    await once(createInterface(child.stdout), "line");
    await waitFor(() => world.agents[0]?.streamCount === 100, { what: "50 open CONNECTs and 50 dials" });
    child.kill("SIGKILL");
    // Sooner than a dial ends by itself.
    await waitFor(() => world.agents[0]?.streamCount === 0, { deadlineMs: 2_000, what: "the agent's streams to end" });
    await waitFor(() => echo.open === 0, { what: "the targets' ends" });
    const now = await counts();
    assert.deepEqual([now.gone - before.gone, now.ok - before.ok, now.waiting, now.open], [50, 50, 0, 0]);
  });
}

/** A TLS connection to the callers' port that has agreed on h2. */
async function agreedOnHttp2(credentials: ReturnType<typeof callerTls>) {
  const port = world.server.addresses.callers?.port ?? 0;
  const socket = connectTls({
    host: "127.0.0.1",
    port,
    servername: "localhost",
    ALPNProtocols: ["h2"],
    ...credentials,
  });
  await once(socket, "secureConnect");
  assert.equal(socket.alpnProtocol, "h2");
  return socket.on("error", () => {});
}

test("a caller that agrees on h2 and writes HTTP/1.1 is answered in HTTP/1.1", async () => {
  const socket = await agreedOnHttp2(callerTls(world.dir.path));
  socket.write(`CONNECT ${world.targets.echo.address} HTTP/1.1\r\nHost: x\r\n\r\n`);
  assert.equal(String((await once(socket, "data"))[0]), "HTTP/1.1 200 Connection Established\r\n\r\n");
  socket.end("still here");
  assert.equal(await text(socket), "still here");
});

test("a caller over HTTP/2 without a certificate is asked for HTTP/1.1, with a sentence", async () => {
  const { ca } = callerTls(world.dir.path);
  const socket = await agreedOnHttp2({ ca });
  socket.write(Buffer.concat([PREFACE, settings()]));
  const [first, goaway, ...more] = new FrameReader().push(await buffer(socket));
  assert.deepEqual([first?.type, goaway?.type, more], [FRAME.settings, FRAME.goaway, []]);
  assert.equal(goaway?.payload.readUInt32BE(4), HTTP_1_1_REQUIRED);
  assert.match(String(goaway?.payload.subarray(8)), /client certificate/);
});
