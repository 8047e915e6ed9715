import assert from "node:assert/strict";
import { createServer } from "node:net";
import { type TestContext, test } from "node:test";
import { listening } from "../../shared/basics/testing/wait.ts";
import { type NameAnswer, startNameServer } from "../../shared/names/testing/name-server.ts";
import { curl } from "../harness/curl.ts";
import { scrapeRegistry } from "../harness/scrape.ts";
import { startHttp, startSocks5 } from "../harness/sidecar.ts";
import { blackHoleTarget } from "../harness/targets/absent.ts";
import { startWorld } from "../harness/world.ts";

/** Of one address, by the server's default. */
const DIAL_MS = 4_000;
const HELLO = "hello from the target\n";

/** A name server of the cluster: reached over TCP, by the agent alone. */
async function clusterDns(t: TestContext, answer: (name: string, type: "A" | "AAAA") => NameAnswer): Promise<string> {
  const server = await startNameServer(answer);
  t.after(() => server[Symbol.asyncDispose]());
  return `127.0.0.1:${server.port}`;
}

const onlyA =
  (...addresses: string[]) =>
  (_name: string, type: string) =>
    type === "A" ? addresses : [];

test("a name server of the cluster resolves names, over TCP through the tunnel", async (t) => {
  const asked: string[] = [];
  const dns = await clusterDns(t, (name, type) => {
    asked.push(name);
    return type === "A" ? ["127.0.0.1"] : [];
  });
  await using world = await startWorld({ targets: ["http"] });
  await using proxy = await startSocks5(world, { clusterDns: dns });
  const { port } = world.targets.http;
  for (const name of ["thanos.monitoring.svc", "thanos.monitoring.svc"]) {
    assert.equal(await curl("--socks5-hostname", proxy.address, `http://${name}:${port}/`), HELLO);
  }
  assert.deepEqual(new Set(asked), new Set(["thanos.monitoring.svc.cluster.local"]));
});

test("of a name whose first address is silent, the second one is reached before the dial of the first is given up", async (t) => {
  const dns = await clusterDns(t, onlyA("127.0.0.2", "127.0.0.1"));
  await using world = await startWorld({ targets: ["http"] });
  const { port } = world.targets.http;
  await using _silent = await blackHoleTarget("127.0.0.2", port);
  await using proxy = await startHttp(world, { clusterDns: dns });
  const begin = performance.now();
  assert.equal(await curl("-x", `http://${proxy.address}`, `http://app.example:${port}/`), HELLO);
  const took = performance.now() - begin;
  assert.ok(took < DIAL_MS - 1_000, `${took} ms, of which curl itself takes some`);
});

test("a name whose addresses are all silent is an error in less than ten seconds", async (t) => {
  const dns = await clusterDns(t, onlyA("127.0.0.2", "127.0.0.3"));
  await using world = await startWorld();
  await using first = await blackHoleTarget("127.0.0.2");
  await using _second = await blackHoleTarget("127.0.0.3", first.port);
  await using proxy = await startHttp(world, { clusterDns: dns });
  const begin = performance.now();
  const head = await curl("-i", "-x", `http://${proxy.address}`, `http://app.example:${first.port}/`);
  assert.match(head, /^HTTP\/1\.1 504 .*127\.0\.0\.[23]:/);
  assert.ok(performance.now() - begin < 10_000);
});

test("a name that does not exist is told as one, and does not make the tunnel look down", async (t) => {
  const dns = await clusterDns(t, (name) => (name === "none.example" ? "NXDOMAIN" : ["127.0.0.1"]));
  await using world = await startWorld({ targets: ["http"] });
  await using proxy = await startHttp(world, { clusterDns: dns, directFallback: true });
  const head = await curl("-i", "-x", `http://${proxy.address}`, "http://none.example/");
  assert.match(head, /^HTTP\/1\.1 502 .*"none\.example" does not resolve[\s\S]*error=dns_error/);
  const url = `http://app.example:${world.targets.http.port}/`;
  assert.equal(await curl("-x", `http://${proxy.address}`, url), HELLO, "through the tunnel: no other knows the name");
});

test("a name that the agent does not find does not make the tunnel look down", async () => {
  await using world = await startWorld({ targets: ["http"] });
  await using proxy = await startHttp(world, { directFallback: true });
  const head = await curl("-i", "-x", `http://${proxy.address}`, "http://none.invalid/");
  assert.match(head, /^HTTP\/1\.1 502 .*none\.invalid[\s\S]*error=dns_error/);
  const url = `http://127.0.0.1:${world.targets.http.port}/`;
  assert.equal(await curl("-x", `http://${proxy.address}`, url), HELLO);
  const server = await scrapeRegistry(world.server.metrics.registry);
  assert.equal(server.value("culvert_server_dial_duration_seconds_count", { outcome: "ok" }), 1, "through the tunnel");
});

test("without agents targets are dialled directly where that is asked for, and refused where not", async (t) => {
  await using world = await startWorld({ agents: 0, server: { agentWaitMs: 20 } });
  const server = createServer((socket) => socket.end("hello"));
  const port = await listening(t, server);
  await using strict = await startSocks5(world);
  await using lenient = await startSocks5(world, { directFallback: true });
  const args = ["--http0.9", `http://localhost:${port}/`];
  assert.equal(await curl("--socks5-hostname", lenient.address, ...args), "hello");
  await assert.rejects(curl("--socks5-hostname", strict.address, ...args));
});

test("names of clouds are dialled directly where that is asked for", async (t) => {
  await using world = await startWorld({ agents: 0, server: { agentWaitMs: 20 } });
  const server = createServer((socket) => socket.end("hello"));
  const port = await listening(t, server);
  const direct = { connectDirectlyToCloudApis: true, directSuffixes: ["localhost"] };
  await using proxy = await startSocks5(world, direct);
  const url = `http://localhost:${port}/`;
  assert.equal(await curl("--http0.9", "--socks5-hostname", proxy.address, url), "hello");
});
