import assert from "node:assert/strict";
import { once } from "node:events";
import { writeFileSync } from "node:fs";
import { connect } from "node:net";
import { text } from "node:stream/consumers";
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

test("a password is wanted from SOCKS clients where there is one", async () => {
  await using world = await startWorld({ targets: ["http"] });
  const loginFile = world.dir.file("login");
  writeFileSync(loginFile, "alice:secret\n");
  await using proxy = await startSocks5(world, { loginFile });
  const url = `http://127.0.0.1:${world.targets.http.port}/`;
  const by = (login: string) => curl("-x", `socks5h://${login}${proxy.address}`, url);
  assert.equal(await by("alice:secret@"), "hello from the target\n");
  await assert.rejects(by("alice:wrong@"));
  await assert.rejects(by(""));
});

test("a sidecar serves on a unix socket, and its health port says how it is", async () => {
  await using world = await startWorld({ targets: ["http"] });
  const udsName = world.dir.file("sidecar");
  await using proxy = await startSocks5(world, { udsName });
  const url = `http://127.0.0.1:${world.targets.http.port}/`;
  assert.equal(await curl("-x", `socks5h://localhost${udsName}`, url), "hello from the target\n");
  const health = `http://127.0.0.1:${proxy.sidecar.addresses.health?.port}`;
  assert.match(await curl(`${health}/readyz?verbose`), /\[\+\]servers ok/);
  assert.match(await curl(`${health}/metrics`), /culvert_sidecar_dials_total\{outcome="ok"\} 1\n/);
});

test("a sidecar that closes lets open connections end, and takes no new ones", async () => {
  await using world = await startWorld({ targets: ["echo"] });
  await using proxy = await startHttp(world, { drainTimeoutMs: 20_000 });
  const socket = connect({ host: "127.0.0.1", port: proxy.port, allowHalfOpen: true });
  socket.write(`CONNECT 127.0.0.1:${world.targets.echo.port} HTTP/1.1\r\nHost: a\r\n\r\n`);
  await once(socket, "data");
  const closing = proxy.sidecar.close();
  await assert.rejects(curl("-x", `http://${proxy.address}`, "http://127.0.0.1/"));
  socket.end("still here");
  assert.equal(await text(socket), "still here");
  await closing;
});
