import assert from "node:assert/strict";
import { test } from "node:test";
import { LinkServer, linkPair } from "../../shared/link/testing/ends.ts";
import { startSlowLine } from "../harness/slow-line.ts";
import { waitFor } from "../harness/wait.ts";

const MIB = 1024 * 1024;
/** Time goes faster by this factor for the checks whether links acknowledge: a minute is 1.2 s. */
const FASTER = 50;
const LOOK_MS = 5_000;
/** As much as a replay buffer holds. */
const KEPT = 16 * MIB;
/**
 * As a session writes, but without the bound of what may be under way: that was learned before the line became slow.
 */
const BATCH = 64 * 1024;
const AT_ONCE = 256 * 1024;
/** 64 KiB/s: the last byte arrives after 256 s. */
const LINE = { bytesPerSecond: 64 * 1024 * FASTER, queueBytes: 256 * 1024, rttMs: 20 };

test("a link whose line has become so slow that all under way takes minutes goes on until the last byte has come", async (t) => {
  t.mock.timers.enable({ apis: ["setInterval"] });
  await using server = await LinkServer.start();
  await using line = await startSlowLine(server, LINE);
  const { near, nearInbox, far, farInbox } = await linkPair(server, line.port);
  let sent = 0;
  farInbox.writable = () => {
    for (; sent < KEPT && far.pendingBytes < AT_ONCE; sent += BATCH) far.write([Buffer.alloc(BATCH)], BATCH);
  };
  farInbox.writable();
  let seconds = 0;
  const isOver = () => {
    t.mock.timers.tick(LOOK_MS);
    seconds += LOOK_MS / 1_000;
    return nearInbox.bytes === KEPT || far.closed;
  };
  await waitFor(isOver, { deadlineMs: 60_000, everyMs: LOOK_MS / FASTER, what: "all bytes" });
  t.diagnostic(`${nearInbox.bytes / MIB} MiB came within ${seconds} s on the clock of the looks`);
  assert.deepEqual([farInbox.closedCount, nearInbox.bytes, far.closed], [0, KEPT, false]);
  assert.ok(seconds > 120, "a byte was under way for longer than a link may be silent");
  near.destroy();
});
