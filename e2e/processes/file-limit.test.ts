import assert from "node:assert/strict";
import { connect, type Socket } from "node:net";
import { test } from "node:test";
import { askAdmin, askStatus } from "../../cli/status/ask.ts";
import { filesLeft } from "../../shared/limits/file-descriptors.ts";
import { createSite } from "../harness/binaries.ts";
import { connectThrough, established } from "../harness/caller.ts";
import { flags } from "../harness/pki-files.ts";
import { startCulvert } from "../harness/processes.ts";
import { SteadyCaller } from "../harness/steady-caller.ts";
import { freePort } from "../harness/targets/absent.ts";
import { TARGETS } from "../harness/targets.ts";
import { TempDir } from "../harness/temp.ts";

const LIMIT = 200;
/** Of these a sixteenth is kept back: 12. */
const HELD = LIMIT - 10;

test("a server that comes to its limit of open files says so in log, readiness and answers, until there is room again", {
  skip: process.platform !== "linux",
}, async () => {
  await using echo = await TARGETS.echo();
  using site = await createSite();
  const adminPort = await freePort();
  await using server = await site.startServer({ handshakeTimeout: "1m", adminPort }, { fileLimit: LIMIT });
  await using _agent = await site.startAgent();
  await using steadyCaller = new SteadyCaller(await connectThrough(site.listener("uds"), echo.address));
  const readyz = async () => {
    const answer = await fetch(`http://127.0.0.1:${site.healthPort}/readyz?verbose`);
    return `${answer.status} ${await answer.text()}`;
  };
  assert.match(await readyz(), /^200 [\s\S]*^\[\+\]file-descriptors ok: \d+ of 200 in use$/m);
  const silent: Socket[] = [];
  try {
    // Of those that come by TCP only half of the limit is kept.
    for (let missing = HELD - server.fdCount(); missing > 0; missing--) {
      silent.push(connect({ path: site.uds }).on("error", () => {}));
    }
    const line = await server.waitForLog("file descriptors are nearly used up");
    assert.match(line, /"level":"error".*"open":1[89]\d,"limit":200,/);
    assert.match(await readyz(), /^503 [\s\S]*^\[-\]file-descriptors failed: 1[89]\d of 200 in use$/m);
    await using refused = await connectThrough(site.listener("uds"), echo.address);
    assert.equal(refused.status, 503);
    assert.match(refused.reason, /^this server has 1\d\d of its 200 files open: raise its limit/);
    const { all } = await askStatus({ host: "127.0.0.1", port: adminPort });
    const { problems } = all as { problems: string[] };
    assert.match(problems.join(), /^1[89]\d of 200 files are open: file descriptors are nearly used up/);
    const asked = { cluster: "default", target: echo.address };
    const trial = await askAdmin(
      { host: "127.0.0.1", port: adminPort },
      { path: "/trial", body: asked, withinMs: 5_000 },
    );
    assert.equal(JSON.parse(trial.body).outcome, "overloaded");
    await steadyCaller.assertUnharmed();
  } finally {
    for (const socket of silent) socket.destroy();
  }
  await server.waitForLog("file descriptors are enough again");
  assert.match(await readyz(), /^200 /);
  await using _next = await established(connectThrough(site.listener("uds"), echo.address));
});

test("an agent that comes to its limit of open files refuses new streams, and stays there for those it has and for probes", {
  skip: process.platform !== "linux",
}, async () => {
  await using echo = await TARGETS.echo();
  using site = await createSite();
  await using _server = await site.startServer();
  const healthServerPort = await freePort();
  await using agent = await site.startAgent({ healthServerPort }, { wait: false, fileLimit: LIMIT });
  await agent.waitForHealth(`http://127.0.0.1:${healthServerPort}/readyz`);
  await using steadyCaller = new SteadyCaller(await connectThrough(site.listener("uds"), echo.address));
  const readyz = async () => {
    const answer = await fetch(`http://127.0.0.1:${healthServerPort}/readyz?verbose`);
    return `${answer.status} ${await answer.text()}`;
  };
  assert.match(await readyz(), /^200 [\s\S]*^\[\+\]file-descriptors ok: \d+ of 200 in use$/m);
  const held: Awaited<ReturnType<typeof connectThrough>>[] = [];
  try {
    let last = await connectThrough(site.listener("uds"), echo.address);
    for (
      ;
      last.status === 200 && held.length < LIMIT;
      last = await connectThrough(site.listener("uds"), echo.address)
    ) {
      held.push(last);
      if (agent.fdCount() >= HELD) await agent.waitForLog("file descriptors are nearly used up");
    }
    held.push(last);
    assert.equal(last.status, 503);
    assert.match(last.reason, /^the agent has 1\d\d of its 200 files open: raise its limit/);
    assert.match(await readyz(), /^503 [\s\S]*^\[-\]file-descriptors failed: 1[89]\d of 200 in use$/m);
    await steadyCaller.assertUnharmed();
  } finally {
    for (const one of held) await one[Symbol.asyncDispose]();
  }
  await agent.waitForLog("file descriptors are enough again");
  assert.match(await readyz(), /^200 /);
  await using _next = await established(connectThrough(site.listener("uds"), echo.address));
});

/**
 * Few unauthenticated peers on two TCP ports and a unix socket, a caller that waits, an agent that moves and has been
 * replaced, awaited hellos, inner handshakes and tokens: loading the program takes more.
 */
const TIGHT = {
  ...{ maxHandshakes: 1, maxWaitingHandshakes: 1, maxWaitingConnections: 60 },
  ...{ maxInnerHandshakes: 1, maxTokenVerifications: 1, maxPendingConnects: 1, maxAgents: 1 },
};
const LET_IN = 2 * (3 + 60) + 60 + 4 + 1 + 4 + 16;

test("the limit that a server names at its start has room for what its bounds let in, and for what it has open by itself", {
  skip: process.platform !== "linux",
}, async () => {
  using site = await createSite();
  const start = (fileLimit: number) => site.startServer({ ...TIGHT, adminPort }, { fileLimit });
  const adminPort = await freePort();
  await using low = await start(150);
  const named = Number(/ulimit -n (\d+)/.exec(await low.waitForLog("this process may have 150 files open"))?.[1]);
  await low.stop();
  await using server = await start(named);
  await server.waitForLog("server started");
  assert.deepEqual(
    server.log.filter((line) => /files open/.test(line)),
    [],
  );
  assert.equal(filesLeft(server.fdCount() + LET_IN, named, "enough"), "enough");
});

test("a router counts two files for a connection, and what it has open by itself", {
  skip: process.platform !== "linux",
}, async () => {
  using dir = new TempDir();
  const ports = flags({ port: await freePort(), bindAddress: "127.0.0.1", healthPort: 0, adminPort: 0 });
  const args = ["router", ...ports, ...flags({ routes: dir.path, maxConnections: 100 })];
  await using router = startCulvert(args, { fileLimit: 220 });
  await router.waitForLog(/may have 220 files open, and could need 267, .*ulimit -n 267/);
  await router.waitForLog("router started");
});

// Node.js itself has 20 open, and reads the modules of a start at the same time.
test("a process that may have only 40 files open starts, and says how many it could need", {
  skip: process.platform !== "linux",
}, async () => {
  using dir = new TempDir();
  const ports = flags({ port: await freePort(), bindAddress: "127.0.0.1", healthPort: 0, adminPort: 0 });
  await using router = startCulvert(["router", ...ports, ...flags({ routes: dir.path })], { fileLimit: 40 });
  await router.waitForLog(/may have 40 files open, and could need /);
  await router.waitForLog("router started");
});
