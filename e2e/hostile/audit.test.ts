import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { closeSync, constants, openSync, readSync } from "node:fs";
import { test } from "node:test";
import { MAX_WAITING } from "../../server/audit/audit-sink.ts";
import { auditLines } from "../../server/audit/testing/trail.ts";
import { createSite } from "../harness/binaries.ts";
import { TARGETS } from "../harness/targets.ts";
import { waitFor } from "../harness/wait.ts";

const CONNECTS = 10_000;
/** Bytes that a pipe and the queue hold together, and the line about the gap. */
const HELD = 64 * 1024 + MAX_WAITING + 4_096;

test(`a trail in a FIFO that nobody reads holds up none of ${CONNECTS} CONNECTs, and all that is lost is counted`, async () => {
  await using echo = await TARGETS.echo();
  using site = await createSite();
  const fifo = site.dir.file("fifo");
  execFileSync("mkfifo", [fifo]);
  await using _server = await site.startServer({ auditLog: fifo, logLevel: "warn" });
  await using _agent = await site.startAgent({ logLevel: "warn" });
  let left = CONNECTS;
  const call = async (): Promise<void> => {
    while (left-- > 0) {
      const { socket } = await site.open("uds", echo.address);
      socket.destroy();
    }
  };
  await Promise.all(Array.from({ length: 16 }, call));
  const page = async (path: string) => (await fetch(`http://127.0.0.1:${site.healthPort}${path}`)).text();
  assert.match(await page("/readyz?verbose"), /audit: the audit trail: nobody reads it, lines of it lost: \d+/);

  const reader = openSync(fifo, constants.O_RDONLY | constants.O_NONBLOCK);
  let text = "";
  const read = (): boolean => {
    const buffer = Buffer.alloc(65_536);
    try {
      for (let count = readSync(reader, buffer); count > 0; count = readSync(reader, buffer)) {
        text += buffer.toString("utf8", 0, count);
      }
    } catch (error) {
      assert.equal((error as NodeJS.ErrnoException).code, "EAGAIN");
    }
    return text.includes('"gap"');
  };
  await waitFor(read, { everyMs: 5, what: "what waits, and how much is missing" });
  closeSync(reader);
  assert.ok(text.length <= HELD, `${text.length} bytes were kept`);
  const lines = auditLines(text);
  const lost = Number(/^culvert_server_audit_lines_lost_total (\d+)$/m.exec(await page("/metrics"))?.[1]);
  assert.equal(lines.at(-1)?.["lost"], lost);
  // The agent's line, and two of each CONNECT; the gap is one more.
  assert.equal(lines.length - 1 + lost, 1 + 2 * CONNECTS);
});
