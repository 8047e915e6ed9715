import assert from "node:assert/strict";
import { test } from "node:test";
import { curl } from "../harness/curl.ts";
import { startHttp, startSocks5 } from "../harness/sidecar.ts";
import { startWorld } from "../harness/world.ts";

const BYTES = 3_000_000;

test("curl reaches a target through the SOCKS5 proxy, by name and by address", async () => {
  await using world = await startWorld({ targets: ["http"] });
  await using proxy = await startSocks5(world);
  const { port } = world.targets.http;
  for (const host of ["127.0.0.1", "localhost"]) {
    const hello = await curl("--socks5-hostname", proxy.address, `http://${host}:${port}/`);
    assert.equal(hello, "hello from the target\n");
  }
  const bytes = await curl("--socks5-hostname", proxy.address, `http://127.0.0.1:${port}/bytes/${BYTES}`);
  assert.equal(bytes.length, BYTES);
});

test("curl reaches a target through the HTTP proxy, by CONNECT and by a whole URL", async () => {
  await using world = await startWorld({ targets: ["http", "https"] });
  await using proxy = await startHttp(world);
  const { http, https } = world.targets;
  const url = `http://127.0.0.1:${http.port}`;
  for (const args of [[`${url}/`], ["--proxytunnel", `${url}/`], ["-k", `https://127.0.0.1:${https.port}/`]]) {
    assert.equal(await curl("-x", `http://${proxy.address}`, ...args), "hello from the target\n", args.join(" "));
  }
  const bytes = await curl("-x", `http://${proxy.address}`, `${url}/bytes/${BYTES}`);
  assert.equal(bytes.length, BYTES);
  const echoed = await curl("-x", `http://${proxy.address}`, "-H", "Transfer-Encoding: chunked", "-d", "body", url);
  assert.equal(echoed, "body");
});

test("a target that refuses is told as the server tells it", async () => {
  await using world = await startWorld({ targets: ["http"] });
  await using proxy = await startHttp(world);
  await using socks = await startSocks5(world);
  const closed = "127.0.0.1:1";
  const head = await curl("-i", "-x", `http://${proxy.address}`, `http://${closed}/`);
  assert.match(
    head,
    /^HTTP\/1\.1 502 127\.0\.0\.1:1 refused the connection.*\r\n[\s\S]*Proxy-Status: culvert; error=connection_refused/i,
  );
  const tunnel = await curl("-v", "-p", "-x", `http://${proxy.address}`, `http://${closed}/`).catch(
    ({ stderr }) => stderr,
  );
  assert.match(tunnel, /< HTTP\/1\.1 502 127\.0\.0\.1:1 refused the connection/);
  const refused = await curl("--socks5-hostname", socks.address, `http://${closed}/`).catch(({ stderr }) => stderr);
  assert.match(refused, /\(5\)|refused/i);
});
