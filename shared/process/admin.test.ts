import assert from "node:assert/strict";
import { once } from "node:events";
import { Agent, get } from "node:http";
import { connect } from "node:net";
import { test } from "node:test";
import { type Admin, type AdminOptions, type Check, startAdmin } from "./admin.ts";
import { createLogger } from "./logger.ts";
import { Instruments } from "./metrics.ts";
import { ConfigError } from "./options.ts";

const log = createLogger({ level: "silent", format: "json", name: "test" });

const FLAGS = { option: "--health-port", hostOption: "--health-bind-address" };

function start(options: Partial<AdminOptions> = {}): Promise<Admin> {
  const { registry } = new Instruments({ processMetrics: false });
  return startAdmin({ port: 0, host: "127.0.0.1", ...FLAGS, metrics: registry, log, ...options });
}

function fetchText(admin: Admin, path: string, agent?: Agent): Promise<{ status: number; type: string; body: string }> {
  return new Promise((resolve, reject) => {
    get({ host: "127.0.0.1", port: admin.address.port, path, agent: agent ?? false }, (response) => {
      let body = "";
      response.on("data", (chunk) => (body += String(chunk)));
      response.on("end", () =>
        resolve({ status: response.statusCode ?? 0, type: response.headers["content-type"] ?? "", body }),
      );
    }).on("error", reject);
  });
}

test("ready says which condition failed; alive is whoever answers", async () => {
  let checks: Check[] = [{ name: "listeners", ok: true }];
  const admin = await start({ checks: () => checks });
  assert.deepEqual((await fetchText(admin, "/readyz")).body, "ok\n");
  assert.deepEqual((await fetchText(admin, "/ready")).status, 200);
  assert.equal((await fetchText(admin, "/readyz?verbose")).body, "[+]listeners ok\nreadyz check passed\n");

  checks = [
    { name: "listeners", ok: true },
    { name: "draining", ok: false, detail: "closing since 3s" },
  ];
  const failed = await fetchText(admin, "/readyz");
  assert.equal(failed.status, 503);
  assert.equal(failed.body, "[+]listeners ok\n[-]draining failed: closing since 3s\nreadyz check failed\n");
  for (const path of ["/healthz", "/livez"]) assert.equal((await fetchText(admin, path)).status, 200);
  assert.equal((await fetchText(admin, "/status")).status, 404);
  await admin.close();
});

test("metrics are in Prometheus' text format, status is JSON and only where asked for", async () => {
  const make = new Instruments({ processMetrics: false });
  make.counter(["things_total"], "Things.").add(2);
  const admin = await start({ metrics: make.registry, status: () => ({ tunnels: [] }) });
  const metrics = await fetchText(admin, "/metrics");
  assert.match(metrics.type, /^text\/plain; version=0\.0\.4/);
  assert.match(metrics.body, /^things_total 2$/m);
  assert.deepEqual(JSON.parse((await fetchText(admin, "/status")).body), { tunnels: [] });
  assert.equal((await fetchText(admin, "/readyz")).status, 404);
  await admin.close();
});

test("closing does not wait for idle or half-open connections", async () => {
  const admin = await start({ checks: () => [] });
  const agent = new Agent({ keepAlive: true });
  await fetchText(admin, "/healthz", agent);
  const silent = connect(admin.address.port, "127.0.0.1").resume();
  await once(silent, "connect");
  const before = performance.now();
  await Promise.all([admin.close(), admin.close(), once(silent, "close")]);
  assert.ok(performance.now() - before < 500);
  agent.destroy();
});

test("garbage on the port ends that connection alone", async () => {
  const admin = await start({ checks: () => [] });
  const socket = connect(admin.address.port, "127.0.0.1").resume();
  socket.on("error", () => {});
  socket.write(Buffer.from([0x16, 3, 1, 0, 0xff, 0, 0]));
  await once(socket, "close");
  assert.equal((await fetchText(admin, "/healthz")).status, 200);
  await admin.close();
});

test("a port in use is told with the flag that moves it", async () => {
  const first = await start();
  await assert.rejects(start({ port: first.address.port }), (error: unknown) => {
    assert.ok(error instanceof ConfigError);
    assert.match(error.message, /^Cannot listen on 127\.0\.0\.1 port \d+: it is in use .* \(--health-port\)\.$/);
    return true;
  });
  await first.close();
});

test("an empty host is every interface", async () => {
  const admin = await start({ host: "", checks: () => [] });
  assert.equal((await fetchText(admin, "/livez")).body, "ok\n");
  await admin.close();
});
