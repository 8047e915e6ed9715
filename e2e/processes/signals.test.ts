import assert from "node:assert/strict";
import { existsSync, writeFileSync } from "node:fs";
import { describe, test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { createSite } from "../harness/binaries.ts";
import { connectThrough, established } from "../harness/caller.ts";
import { runConcurrently } from "../harness/concurrently.ts";
import { atFull, ON_CI } from "../harness/counts.ts";
import { peerEnd } from "../harness/peer-end.ts";
import { flags, serverFiles } from "../harness/pki-files.ts";
import { MAIN, nodeOnly, RUNTIME, startCulvert } from "../harness/processes.ts";
import { Program } from "../harness/program.ts";
import { freePort } from "../harness/targets/absent.ts";
import { TARGETS } from "../harness/targets.ts";
import { within } from "../harness/wait.ts";

/** A second signal counts as another wish only this time after the first. */
const SAME_WISH_MS = 1_000;

const PAIRS = [
  ["SIGTERM", "SIGTERM", 143],
  ["SIGINT", "SIGINT", 130],
  ["SIGINT", "SIGTERM", 143],
] as const;

describe("signals", { concurrency: 2 }, () => {
  for (const [first, second, code] of ON_CI ? PAIRS : PAIRS.slice(2)) {
    test(`${first} and within a second ${second}: one wish; another ${second} later ends the server at once with ${code}`, async () => {
      await using echo = await TARGETS.echo();
      using site = await createSite();
      await using server = await site.startServer();
      await using _agent = await site.startAgent();
      await using connection = await established(connectThrough(site.listener("tls"), echo.address));

      server.signal(first);
      await server.waitForLog(/"closing"/);
      const firstAt = performance.now();
      for (let i = 0; i < 3; i++) {
        await sleep(100);
        server.signal(second);
      }
      await connection.send("still here");
      assert.equal((await connection.readBytes(10)).toString(), "still here");
      assert.equal(server.running, true);

      const ended = peerEnd(connection.socket.resume());
      await sleep(Math.max(0, SAME_WISH_MS + 100 - (performance.now() - firstAt)));
      server.signal(second);
      // Its drain would take 30 s.
      assert.equal(await within(server.exited, 15_000, "the server to end"), `exit code ${code}`);
      assert.notEqual(await ended, "closed");
      await server.waitForLog(/"second signal: ending at once"/);
    });
  }

  test("a second signal ends an agent at once, too", async () => {
    await using echo = await TARGETS.echo();
    using site = await createSite();
    await using _server = await site.startServer();
    await using agent = await site.startAgent();
    await using connection = await connectThrough(site.listener("tls"), echo.address);
    const ended = peerEnd(connection.socket.resume());
    agent.signal("SIGTERM");
    await agent.waitForLog(/"closing"/);
    await sleep(SAME_WISH_MS + 100);
    assert.equal(agent.running, true);
    agent.signal("SIGTERM");
    assert.equal(await within(agent.exited, 15_000, "the agent to end"), "exit code 143");
    assert.equal(await ended, "ECONNRESET");
  });

  test("SIGHUP has files read again and ends nothing, at the server and at the agent", async () => {
    await using echo = await TARGETS.echo();
    using site = await createSite();
    await using server = await site.startServer();
    await using agent = await site.startAgent();
    await using connection = await connectThrough(site.listener("tls"), echo.address);
    for (const process of [server, agent]) {
      process.signal("SIGHUP");
      await process.waitForLog(/"signal":"SIGHUP".*"reading all files again"/);
    }
    await connection.send("still here");
    assert.equal((await connection.readBytes(10)).toString(), "still here");
    assert.deepEqual([server.running, agent.running], [true, true]);
  });

  test("a signal in the middle of the start ends the process cleanly, and leaves no socket behind", async () => {
    using site = await createSite();
    const { serverCert: _c, serverKey: _k, serverCaCert: _a, ...files } = serverFiles(site.dir.path);
    await runConcurrently(atFull(8, 4), 2, async (index) => {
      const udsName = site.dir.file(`s${index}`);
      const ports = { agentPort: await freePort(), agentBindAddress: "127.0.0.1", healthPort: 0, adminPort: 0 };
      await using server = startCulvert(["server", ...flags({ udsName, ...ports, ...files })]);
      await sleep(atFull(60, 120) * (index + 1));
      server.signal("SIGTERM");
      const end = await within(server.exited, 5_000, "the server to end");
      // Before anybody listens for it, the default of the kernel ends the process.
      assert.ok(end === "exit code 0" || end === "SIGTERM", `${end}\n${server.log.join("\n")}`);
      assert.equal(existsSync(udsName), false);
    });
  });

  const HOOKS = nodeOnly("modules are loaded without hooks of node:module");
  const FIRST_LINE = "SIGTERM to process 1 ends it with 0 from the first line of ours on, before any module is loaded";
  test(FIRST_LINE, HOOKS, async (t) => {
    if (process.getuid?.() !== 0) return t.skip("a PID namespace needs root");
    // The signal comes when the first module of ours is asked for. The kernel ignores it at process 1 without listener.
    const hooks = `export async function resolve(name, context, next) {
      if (name.includes("chunks/")) process.kill(process.pid, 'SIGTERM');
      return next(name, context);
    }`;
    const url = (code: string) => `data:text/javascript,${encodeURIComponent(code)}`;
    const preload = url(`import { register } from "node:module"; register(${JSON.stringify(url(hooks))});`);
    using site = await createSite();
    const routes = site.dir.file("routes.yaml");
    writeFileSync(routes, 'sni: [blue.example]\nto: ["127.0.0.1:1"]\n'); // it would run on
    const argv = ["unshare", "-pf", "--kill-child", RUNTIME, "--import", preload, MAIN, "router"];
    const ports = { port: await freePort(), bindAddress: "127.0.0.1", healthPort: 0, adminPort: 0 };
    await using router = new Program("culvert router", [...argv, ...flags({ routes, ...ports })]);
    assert.equal(await within(router.exited, 10_000, "process 1 to end"), "exit code 0");
  });

  test("SIGUSR1 opens no inspector, which a caller could reach through an agent", async () => {
    using site = await createSite();
    await using server = await site.startServer();
    await using agent = await site.startAgent();
    for (const process of [server, agent]) {
      process.signal("SIGUSR1");
      process.signal("SIGHUP");
      await process.waitForLog(/"signal":"SIGHUP"/);
      // It answers while it would say that it listens.
      process.signal("SIGHUP");
      await process.waitUntil(() => process.log.filter((line) => line.includes("SIGHUP")).length > 1, 5_000, "SIGHUP");
      assert.doesNotMatch(process.log.join("\n"), /Debugger/);
    }
  });
});
