import assert from "node:assert/strict";
import { execFile, spawn } from "node:child_process";
import { once } from "node:events";
import { createInterface } from "node:readline";
import { test } from "node:test";
import { promisify } from "node:util";
import { fetch, ProxyAgent } from "undici";
import { startNameServer } from "../../shared/names/testing/name-server.ts";
import { startHttp, startSocks5 } from "../harness/sidecar.ts";
import { startWorld } from "../harness/world.ts";
import { missingPython, PYTHON } from "../proxies/harness/missing.ts";
import { goMissing, goPeerBinary } from "./go-peer.ts";

const HELLO = "hello from the target\n";
const skip = goMissing ?? false;
const run = promisify(execFile);

test("Go's clients reach http and https targets through both sidecars", { skip }, async () => {
  const program = await goPeerBinary("go-proxies");
  await using world = await startWorld({ targets: ["http", "https"] });
  await using socks = await startSocks5(world);
  await using http = await startHttp(world);
  const { http: plain, https: secure } = world.targets;
  const urls = [`http://localhost:${plain.port}/`, `https://localhost:${secure.port}/`];
  for (const proxy of [`socks5://${socks.address}`, `x-socks5://${socks.address}`, `http://${http.address}`]) {
    const { stdout } = await run(program, [proxy, ...urls, ...urls], { timeout: 30_000 });
    assert.equal(stdout, HELLO.repeat(4), proxy);
  }
});

test("grpc-go calls a server by HTTPS_PROXY, and by x/net/proxy over SOCKS5", { skip }, async () => {
  const program = await goPeerBinary("go-grpc");
  const server = spawn(program, ["-mode", "server"], { stdio: ["pipe", "pipe", "inherit"] });
  try {
    const [port] = (await once(createInterface(server.stdout), "line")) as [string];
    // Go never asks a proxy for a loopback address.
    await using names = await startNameServer((_name, type) => (type === "A" ? ["127.0.0.1"] : []));
    await using world = await startWorld({ agents: 1 });
    const byName = { clusterDns: `127.0.0.1:${names.port}` };
    await using http = await startHttp(world, byName);
    await using socks = await startSocks5(world, byName);
    const check = ["-mode", "check", "-target", `grpc.example:${port}`];
    const env = { ...process.env, HTTPS_PROXY: `http://${http.address}` };
    assert.equal((await run(program, check, { env })).stdout, "SERVING\n");
    assert.equal((await run(program, [...check, "-socks", socks.address])).stdout, "SERVING\n");
  } finally {
    server.stdin.end();
  }
});

const SCRIPT = `
import sys, requests, urllib3
urllib3.disable_warnings()
session = requests.Session()
session.trust_env = False
session.verify = False
session.proxies = {"http": sys.argv[1], "https": sys.argv[1]}
for url in sys.argv[2:]:
    print(session.get(url).text, end="")
`;

test("Python's requests reaches http and https targets through both sidecars", {
  skip: missingPython("requests", "socks"),
}, async () => {
  await using world = await startWorld({ targets: ["http", "https"] });
  await using socks = await startSocks5(world);
  await using http = await startHttp(world);
  const { http: plain, https: secure } = world.targets;
  const urls = [`http://localhost:${plain.port}/`, `https://localhost:${secure.port}/`];
  for (const proxy of [`socks5h://${socks.address}`, `socks5://${socks.address}`, `http://${http.address}`]) {
    const { stdout } = await run(PYTHON, ["-c", SCRIPT, proxy, ...urls, ...urls], { timeout: 30_000 });
    assert.equal(stdout, HELLO.repeat(4), proxy);
  }
});

test("undici reaches http and https targets through the HTTP sidecar, by CONNECT and by whole URLs", async () => {
  await using world = await startWorld({ targets: ["http", "https"] });
  await using http = await startHttp(world);
  const { http: plain, https: secure } = world.targets;
  for (const proxyTunnel of [true, false]) {
    const requestTls = { rejectUnauthorized: false };
    const dispatcher = new ProxyAgent({ uri: `http://${http.address}`, proxyTunnel, requestTls });
    for (const url of [`http://localhost:${plain.port}/`, `https://localhost:${secure.port}/`]) {
      for (let times = 0; times < 2; times++) assert.equal(await (await fetch(url, { dispatcher })).text(), HELLO, url);
    }
    await dispatcher.close();
  }
});
