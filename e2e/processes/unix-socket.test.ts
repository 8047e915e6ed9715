import assert from "node:assert/strict";
import { existsSync, rmSync, statSync, writeFileSync } from "node:fs";
import { createServer } from "node:net";
import { describe, test } from "node:test";
import { createSite, type Site } from "../harness/binaries.ts";
import { connectThrough } from "../harness/caller.ts";
import { flags, serverFiles } from "../harness/pki-files.ts";
import { type ManagedProcess, startCulvert } from "../harness/processes.ts";
import { freePort } from "../harness/targets/absent.ts";
import { TARGETS } from "../harness/targets.ts";
import { waitFor, within } from "../harness/wait.ts";

describe("the callers' unix socket", { concurrency: 2 }, () => {
  test("it is 0660, serves, is never taken from its live owner, and is removed at the end", async () => {
    using site = await createSite();
    await using owner = await site.startServer();
    assert.equal(modeOf(site.uds), 0o660);
    await assertServed(site);

    await using second = startOn(site, { agentPort: await freePort() });
    await assertConfigError(second, /--uds-name: another server listens on .*\. Stop it, or name another path\./);
    await assertServed(site);

    await owner.stop();
    assert.equal(existsSync(site.uds), false);
  });

  test("--uds-mode is its mode, whatever the umask", async () => {
    using site = await createSite();
    await using _server = await site.startServer({ udsMode: "666" });
    assert.equal(modeOf(site.uds), 0o666);
  });

  test("one that a killed server left behind is taken over, unless --delete-existing-uds-file=false", async () => {
    using site = await createSite();
    const killed = await site.startServer();
    await killed.kill();
    assert.equal(existsSync(site.uds), true, "left over");
    await using careful = startOn(site, { deleteExistingUdsFile: false });
    await assertConfigError(careful, /--uds-name: .* is left over .* Remove it, or give --delete-existing-uds-file/);
    assert.equal(existsSync(site.uds), true);
    await using _next = await site.startServer();
    await assertServed(site);
  });

  test("an owner that is no culvert and never answers is left alone as well", async () => {
    using site = await createSite();
    const owner = createServer(() => {});
    await new Promise<void>((resolve) => owner.listen(site.uds, resolve));
    try {
      await using second = startOn(site);
      await assertConfigError(second, /another server listens on/);
      assert.equal(existsSync(site.uds), true);
    } finally {
      owner.close();
    }
  });

  test("one that is removed is logged, and the server is unready; open connections go on", async () => {
    await using echo = await TARGETS.echo();
    using site = await createSite();
    await using server = await site.startServer({ healthShowsClusters: true });
    await using _agent = await site.startAgent();
    await using before = await connectThrough(site.listener("uds"), echo.address);
    rmSync(site.uds);
    await server.waitForLog(/"level":"error".*was removed or replaced while this server listened on it/);
    const readyz = await fetch(`http://127.0.0.1:${site.healthPort}/readyz`);
    assert.equal(readyz.status, 503);
    assert.match(await readyz.text(), /^\[-\]listeners failed: unix socket not open \(--uds-name: .* was removed or/m);
    await before.send("still here");
    assert.equal((await before.readBytes(10)).toString(), "still here");
  });

  test("one that another server has taken stays that server's, also when the first one ends", async () => {
    using site = await createSite();
    await using first = await site.startServer();
    rmSync(site.uds);
    await using second = startOn(site, { agentPort: await freePort() });
    await second.waitForLog(/"server started"/);
    await first.waitForLog(/"level":"error".*was removed or replaced/);
    await first.stop();
    await assertServed(site);
    await second.stop();
    assert.equal(existsSync(site.uds), false);
  });

  test("what is no socket is never removed, and an impossible path says why", async () => {
    using site = await createSite();
    writeFileSync(site.uds, "precious");
    await using onFile = startOn(site);
    await assertConfigError(onFile, /--uds-name: .* exists and is not a socket\. Name another path\./);
    assert.equal(statSync(site.uds).size, 8);
    await using nowhere = startOn(site, { udsName: site.dir.file("none/s") });
    await assertConfigError(nowhere, /--uds-name: cannot listen on .*: its folder does not exist/);
    await using long = startOn(site, { udsName: site.dir.file("x".repeat(120)) });
    await assertConfigError(long, /--uds-name is longer than the 107 bytes/);
  });
});

function startOn(site: Site, more: Readonly<Record<string, string | number | boolean>> = {}): ManagedProcess {
  const ports = {
    agentPort: site.agentPort,
    agentBindAddress: "127.0.0.1",
    serverPort: 0,
    healthPort: 0,
    adminPort: 0,
  };
  const { serverCert: _c, serverKey: _k, serverCaCert: _a, ...files } = serverFiles(site.dir.path);
  return startCulvert(["server", ...flags({ udsName: site.uds, ...ports, ...files, ...more })]);
}

async function assertConfigError(process: ManagedProcess, sentence: RegExp): Promise<void> {
  const end = await within(process.exited, 5_000, "the process to give up");
  await waitFor(() => sentence.test(process.log.join("\n")), { what: `${sentence}` });
  const said = process.log.join("\n");
  assert.equal(end, "exit code 2", said);
  assert.doesNotMatch(said, /^\s+at /m, "no stack for the operator");
}

/** Somebody answers, though without an agent there is only one answer. */
async function assertServed(site: Site): Promise<void> {
  await using connection = await connectThrough(site.listener("uds"), "10.0.0.1:443");
  assert.equal(connection.status, 503);
}

function modeOf(path: string): number {
  return statSync(path).mode & 0o777;
}
