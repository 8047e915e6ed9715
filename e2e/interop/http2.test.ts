import assert from "node:assert/strict";
import { execFile, spawn } from "node:child_process";
import { once } from "node:events";
import { writeFile } from "node:fs/promises";
import { createServer } from "node:https";
import type { AddressInfo } from "node:net";
import { createInterface } from "node:readline";
import { buffer, text } from "node:stream/consumers";
import { after, test } from "node:test";
import { connect as connectTls } from "node:tls";
import { promisify } from "node:util";
import { FRAME, FrameReader, PREFACE, settings } from "../../shared/node/testing/http2-frames.ts";
import { selfSigned } from "../harness/certificate.ts";
import { Payload } from "../harness/payload.ts";
import { callerTls } from "../harness/pki-files.ts";
import { Program } from "../harness/program.ts";
import { scrapeRegistry } from "../harness/scrape.ts";
import { started } from "../harness/started.ts";
import { blackHoleTarget, freePort } from "../harness/targets/absent.ts";
import { listenOnLoopback } from "../harness/targets/tcp.ts";
import { refusedTarget, TARGETS } from "../harness/targets.ts";
import { takesConnections, waitFor } from "../harness/wait.ts";
import { startWorld, type Via } from "../harness/world.ts";
import { missingProgram } from "../proxies/harness/missing.ts";
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

const noNghttpx = missingProgram("nghttpx");

/** nghttp2's own client is that of its proxy: HTTP/1.1 from curl, HTTP/2 to the server. */
async function startNghttpx(): Promise<{ readonly url: string } & AsyncDisposable> {
  const port = await freePort();
  const file = (name: string): string => world.dir.file(name);
  const backend = `127.0.0.1,${world.server.addresses.callers?.port};;proto=h2;tls;sni=localhost`;
  const tls = [`--cacert=${file("server-ca.crt")}`, `--client-cert-file=${file("client.crt")}`];
  const program = new Program("nghttpx", [
    ...[
      "nghttpx",
      "--conf=/dev/null",
      "--http2-proxy",
      "--workers=1",
      `--client-private-key-file=${file("client.key")}`,
    ],
    ...[...tls, `--frontend=127.0.0.1,${port};no-tls`, `--backend=${backend}`],
  ]);
  return await started(Object.assign(program, { url: `http://127.0.0.1:${port}` }), () =>
    waitFor(() => takesConnections({ port }), { what: "nghttpx to listen" }),
  );
}

test("nghttp2 carries curl's CONNECTs, to http and to https", { skip: noNghttpx }, async () => {
  await using proxy = await startNghttpx();
  await using http = await TARGETS.http();
  await using https = await TARGETS.https();
  const ca = world.dir.file("target.crt");
  await writeFile(ca, https.certificate.cert);
  for (const url of [`http://${http.address}/bytes/1000000`, `https://${https.address}/bytes/1000000`]) {
    const curl = ["--silent", "--show-error", "--fail", "--proxytunnel", "--proxy", proxy.url, "--cacert", ca, url];
    const { stdout } = await promisify(execFile)("curl", curl, { encoding: "buffer", maxBuffer: 2_000_000 });
    assert.ok(stdout.equals(new Payload().whole(1_000_000)), url);
  }
});

test("a refused CONNECT is refused through nghttp2 as well", { skip: noNghttpx }, async () => {
  await using proxy = await startNghttpx();
  await using target = await refusedTarget();
  const curl = promisify(execFile)("curl", [
    "--silent",
    "--verbose",
    "--proxytunnel",
    "--proxy",
    proxy.url,
    target.address,
  ]);
  const { stderr } = (await curl.catch((error) => error)) as { readonly stderr: string };
  assert.match(stderr, /HTTP\/1\.1 502.*proxy-status: culvert; error=connection_refused/is);
});

/** Agrees on h2 with the proxy, and then writes HTTP/1.1, as all of Go's net/http does with a proxy over TLS. */
test("Prometheus scrapes an https target through the callers' port", {
  skip: missingProgram("prometheus"),
}, async () => {
  const certificate = await selfSigned();
  const target = createServer(certificate, (_request, response) => response.end("answer 42\n"));
  await listenOnLoopback(target);
  const { port } = target.address() as AddressInfo;
  await writeFile(world.dir.file("cas.crt"), callerTls(world.dir.path).ca + certificate.cert);
  const scrape = {
    ...{
      job_name: "target",
      scheme: "https",
      scrape_interval: "1s",
      static_configs: [{ targets: [`127.0.0.1:${port}`] }],
    },
    proxy_url: `https://127.0.0.1:${world.server.addresses.callers?.port}`,
    tls_config: { ca_file: "cas.crt", cert_file: "client.crt", key_file: "client.key" },
  };
  await writeFile(world.dir.file("prometheus.yaml"), JSON.stringify({ scrape_configs: [scrape] }));
  const own = await freePort();
  await using _prometheus = new Program("prometheus", [
    ...["prometheus", `--config.file=${world.dir.file("prometheus.yaml")}`, `--web.listen-address=127.0.0.1:${own}`],
    `--storage.tsdb.path=${world.dir.file("tsdb")}`,
  ]);
  const value = async () => {
    const answer = await fetch(`http://127.0.0.1:${own}/api/v1/query?query=answer`);
    const { data } = (await answer.json()) as { data: { result: { value: [number, string] }[] } };
    return data.result[0]?.value[1];
  };
  assert.equal(await waitFor(value, { deadlineMs: 30_000, everyMs: 200, what: "a scrape" }), "42");
  target.close();
});
