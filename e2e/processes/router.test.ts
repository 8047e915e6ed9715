import assert from "node:assert/strict";
import { once } from "node:events";
import { writeFileSync } from "node:fs";
import { connect, type Socket } from "node:net";
import { test } from "node:test";
import { helloFor } from "../../shared/listen/testing/client-hello.ts";
import { KubernetesVolume } from "../harness/kubernetes-volume.ts";
import { flags } from "../harness/pki-files.ts";
import { type ManagedProcess, startCulvert } from "../harness/processes.ts";
import { freePort } from "../harness/targets/absent.ts";
import { TARGETS } from "../harness/targets.ts";
import { TempDir } from "../harness/temp.ts";
import { waitFor, within } from "../harness/wait.ts";

const HELLO = helloFor("blue.example");

interface Site {
  readonly process: ManagedProcess;
  readonly port: number;
  readonly health: string;
}

/** `culvert router`, ready. */
async function startRouter(routes: string, more: Readonly<Record<string, string>> = {}): Promise<Site> {
  const [port, healthPort] = [await freePort(), await freePort()];
  const ports = { port, healthPort, adminPort: 0, bindAddress: "127.0.0.1", healthBindAddress: "127.0.0.1" };
  const process = startCulvert(["router", ...flags({ routes, healthShowsClusters: true, ...ports, ...more })]);
  const health = `http://127.0.0.1:${healthPort}`;
  await process.waitForHealth(`${health}/readyz`);
  return { process, port, health };
}

/** A connection by name that is known to have arrived: its echo has come. */
async function arrive(port: number): Promise<Socket> {
  const socket = connect({ host: "127.0.0.1", port }).on("error", () => {});
  socket.write(HELLO);
  await once(socket, "data", { signal: AbortSignal.timeout(5_000) });
  return socket;
}

test("the routes of a mounted ConfigMap are followed, and a broken version is logged and not used", async () => {
  using dir = new TempDir();
  await using echo = await TARGETS.echo();
  const volume = new KubernetesVolume(dir.file("routes"), { "blue.yaml": "sni: [other.example]\nto: [h:1]\n" });
  const site = await startRouter(volume.path);
  await using router = site.process;
  volume.update({ "blue.yaml": `sni: [blue.example]\nto: ["${echo.address}"]\n` });
  await router.waitForLog("routes were read again");
  (await arrive(site.port)).destroy();
  volume.update({ "blue.yaml": "sni: [blue.example]\nto: []\n" });
  await router.waitForLog(/blue\.yaml".*to is empty: name at least one backend/);
  const ready = await (await fetch(`${site.health}/readyz?verbose`)).text();
  assert.match(ready, /\[!\]routes: 1 in 1 file; not in use: \S+blue\.yaml: to is empty/);
  (await arrive(site.port)).destroy();
});

test("SIGTERM waits for what is open, up to --drain-timeout; an idle router is gone at once", async () => {
  using dir = new TempDir();
  await using echo = await TARGETS.echo();
  const routes = dir.file("routes.yaml");
  writeFileSync(routes, `sni: [blue.example]\nto: ["${echo.address}"]\n`);
  const site = await startRouter(routes, { drainTimeout: "60s" });
  await using router = site.process;
  const open = await arrive(site.port);
  router.signal("SIGTERM");
  await waitFor(async () => (await fetch(`${site.health}/readyz`)).status === 503, { what: "not ready" });
  open.write("still here");
  assert.equal(String((await once(open, "data"))[0]), "still here");
  open.end();
  assert.equal(await within(router.exited, 10_000, "the router's end"), "exit code 0");

  const idle = await startRouter(routes, { drainTimeout: "60s" });
  idle.process.signal("SIGTERM");
  assert.equal(await within(idle.process.exited, 10_000, "the idle router's end"), "exit code 0");
});

test("wrong routes end the start with sentences and exit code 2", async () => {
  using dir = new TempDir();
  const routes = dir.file("routes.yaml");
  writeFileSync(routes, "sni: [10.0.0.1]\nto: [h:1]\nsendproxy: v2\n");
  await using router = startCulvert(["router", ...flags({ routes, logFormat: "pretty" })]);
  assert.equal(await within(router.exited, 10_000, "the router's end"), "exit code 2");
  const told = router.log.filter((line) => line.startsWith("culvert router: "));
  assert.equal(told.length, 2, router.log.join("\n"));
  assert.match(told[0] ?? "", /routes\.yaml: (sni\[0\]|knows no key)/);
});
