import assert from "node:assert/strict";
import { once } from "node:events";
import { writeFileSync } from "node:fs";
import { createServer } from "node:http";
import { createServer as createHttpsServer } from "node:https";
import { type AddressInfo, connect, type Server } from "node:net";
import { type TestContext, test } from "node:test";
import { selfSigned } from "../harness/certificate.ts";
import { curl } from "../harness/curl.ts";
import { startHttp } from "../harness/sidecar.ts";
import { TempDir } from "../harness/temp.ts";
import { startWorld } from "../harness/world.ts";

const HELLO = "hello from the target\n";
const LOGIN = `Basic ${Buffer.from("user:secret").toString("base64")}`;

interface HostedProxy {
  readonly port: number;
  /** Requests, as the proxy has read them. */
  readonly asked: string[];
}

/** A proxy of the hosted cluster's network, which wants a password. */
async function hostedProxy(
  t: TestContext,
  tls?: { readonly cert: string; readonly key: string },
): Promise<HostedProxy> {
  const asked: string[] = [];
  const server: Server = tls === undefined ? createServer() : createHttpsServer(tls);
  server.on("connect", (wanted, socket) => {
    asked.push(`CONNECT ${wanted.url}`);
    socket.on("error", () => {});
    if (wanted.headers["proxy-authorization"] !== LOGIN) {
      socket.end("HTTP/1.1 407 who are you\r\nContent-Length: 0\r\n\r\n");
      return;
    }
    const [host = "", port] = (wanted.url ?? "").split(":");
    const target = connect({ host, port: Number(port) }, () => socket.write("HTTP/1.1 200 OK\r\n\r\n"));
    target.on("error", () => socket.destroy());
    target.pipe(socket).pipe(target);
  });
  server.on("request", (wanted, answer) => {
    asked.push(`${wanted.method} ${wanted.url}`);
    if (wanted.headers["proxy-authorization"] !== LOGIN) {
      answer.writeHead(407).end();
      return;
    }
    answer.writeHead(502).end(); // its names lead nowhere
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  t.after(() => server.close());
  return { port: (server.address() as AddressInfo).port, asked };
}

test("the hosted cluster's proxy is reached through the tunnel, with its password", async (t) => {
  const hosted = await hostedProxy(t);
  await using world = await startWorld({ targets: ["http", "https"] });
  const at = (login: string) => `http://${login}127.0.0.1:${hosted.port}`;
  await using proxy = await startHttp(world, { httpProxy: at("user:secret@"), httpsProxy: at("user:secret@") });
  const { http, https } = world.targets;
  assert.equal(await curl("-x", `http://${proxy.address}`, `http://127.0.0.1:${http.port}/`), HELLO);
  assert.deepEqual(hosted.asked, [], "loopback is never a proxy's");
  await curl("-k", "-x", `http://${proxy.address}`, `https://app.invalid:${https.port}/`).catch(() => "");
  await curl("-x", `http://${proxy.address}`, `http://app.invalid:${http.port}/path`).catch(() => "");
  assert.deepEqual(hosted.asked, [`CONNECT app.invalid:${https.port}`, `GET http://app.invalid:${http.port}/path`]);
  await using wrong = await startHttp(world, { httpsProxy: at("user:wrong@") });
  const refused = await curl("-v", "-p", "-x", `http://${wrong.address}`, "http://app.invalid/").catch((e) => e.stderr);
  assert.match(refused, /HTTP\/1\.1 407 who are you/);
});

test("NO_PROXY names targets that the hosted cluster's proxy is not asked for", async (t) => {
  const hosted = await hostedProxy(t);
  await using world = await startWorld({ agents: 1 });
  const httpProxy = `http://user:secret@127.0.0.1:${hosted.port}`;
  await using proxy = await startHttp(world, { httpProxy, noProxy: ".svc,10.0.0.0/8,other.invalid:81" });
  for (const [url, isProxied] of [
    ["http://app.svc/", false],
    ["http://10.255.255.255:1/", false],
    ["http://other.invalid:81/", false],
    ["http://other.invalid:82/", true],
  ] as const) {
    hosted.asked.length = 0;
    await curl("--max-time", "3", "-x", `http://${proxy.address}`, url).catch(() => "");
    assert.equal(hosted.asked.length > 0, isProxied, url);
  }
});

test("a proxy over TLS is trusted by the CAs of --proxy-ca", async (t) => {
  using folder = new TempDir();
  const certificate = await selfSigned();
  writeFileSync(folder.file("ca"), certificate.cert);
  const hosted = await hostedProxy(t, certificate);
  await using world = await startWorld({ agents: 1 });
  const httpsProxy = `https://user:secret@127.0.0.1:${hosted.port}`;
  await using trusting = await startHttp(world, { httpsProxy, proxyCa: folder.file("ca") });
  await curl("-p", "-x", `http://${trusting.address}`, "http://app.invalid/").catch(() => "");
  assert.deepEqual(hosted.asked, ["CONNECT app.invalid:80"]);
  await using other = await startHttp(world, { httpsProxy });
  const refused = await curl("-v", "-p", "-x", `http://${other.address}`, "http://app.invalid/").catch((e) => e.stderr);
  assert.match(refused, /502 TLS to the proxy https:\/\/127\.0\.0\.1:\d+ failed/);
});
