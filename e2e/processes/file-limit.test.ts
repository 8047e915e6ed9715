import assert from "node:assert/strict";
import { connect, type Socket } from "node:net";
import { test } from "node:test";
import { createSite } from "../harness/binaries.ts";
import { connectThrough } from "../harness/caller.ts";
import { TARGETS } from "../harness/targets.ts";
import { Witness } from "../harness/witness.ts";

const LIMIT = 200;
/** Of these a sixteenth is kept back: 12. */
const HELD = LIMIT - 10;

test("a server that comes to its limit of open files says so in log, readiness and answers, until there is room again", {
  skip: process.platform !== "linux",
}, async () => {
  await using echo = await TARGETS.echo();
  using site = await createSite();
  await using server = await site.startServer({ handshakeTimeout: "1m" }, { fileLimit: LIMIT });
  await using _agent = await site.startAgent();
  await using witness = new Witness(await connectThrough(site.listener("uds"), echo.address));
  const readyz = async () => {
    const answer = await fetch(`http://127.0.0.1:${site.healthPort}/readyz?verbose`);
    return `${answer.status} ${await answer.text()}`;
  };
  assert.match(await readyz(), /^200 [\s\S]*^\[\+\]file-descriptors ok: \d+ of 200 in use$/m);
  const silent: Socket[] = [];
  try {
    for (let missing = HELD - server.fdCount(); missing > 0; missing--) {
      silent.push(connect({ port: site.callerPort, host: "127.0.0.1" }).on("error", () => {}));
    }
    const line = await server.waitForLog("file descriptors are nearly used up");
    assert.match(line, /"level":"error".*"open":1[89]\d,"limit":200,/);
    assert.match(await readyz(), /^503 [\s\S]*^\[-\]file-descriptors failed: 1[89]\d of 200 in use$/m);
    await using refused = await connectThrough(site.listener("uds"), echo.address);
    assert.equal(refused.status, 503);
    assert.match(refused.reason, /^this server has 1\d\d of its 200 files open: raise its limit/);
    await witness.assertUnharmed();
  } finally {
    for (const socket of silent) socket.destroy();
  }
  await server.waitForLog("file descriptors are enough again");
  assert.match(await readyz(), /^200 /);
  await using next = await connectThrough(site.listener("uds"), echo.address);
  assert.equal(next.status, 200);
});
