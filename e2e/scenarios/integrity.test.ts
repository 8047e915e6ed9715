import assert from "node:assert/strict";
import { test } from "node:test";
import { established } from "../harness/caller.ts";
import { runConcurrently } from "../harness/concurrently.ts";
import { atFull } from "../harness/counts.ts";
import { CLOSINGS, type Closing, encodeTransfer, play, type Transfer, transferTarget } from "../harness/transfer.ts";
import { within } from "../harness/wait.ts";
import { startWorld, type Via } from "../harness/world.ts";

const CONNECTIONS = atFull(2_000, 200, 1_000);
const AT_ONCE = 32;
const LARGEST = 8 * 1024 * 1024;
/** A connection in this number carries nothing at all in a direction. */
const EMPTY_EVERY = 50;
const DEADLINE_MS = 60_000;

for (const via of ["uds", "tls"] as const) {
  test(`over ${via}, no byte is lost or added, whoever closes first, the instant the last byte is written`, async () => {
    await using target = await transferTarget();
    await using world = await startWorld();
    const moved = { up: 0, down: 0 };
    await runConcurrently(CONNECTIONS / 2, AT_ONCE, async (index) => {
      const transfer = transferOf(index, via);
      await within(run(via, transfer), DEADLINE_MS, `the transfer ${JSON.stringify(transfer)}`);
      moved.up += transfer.bytesUp;
      moved.down += transfer.bytesDown;
    });
    assert.equal(target.accepted, CONNECTIONS / 2);

    async function run(via: Via, transfer: Transfer): Promise<void> {
      const header = encodeTransfer(transfer);
      const early = transfer.seed % 2 === 0;
      await using connection = await established(
        world.connect(target.address, { via, ...(early ? { early: header } : {}) }),
      );
      if (!early) connection.socket.write(header);
      await Promise.all([play(connection.socket, "caller", transfer), target.outcome(transfer.seed)]);
    }
  });
}

/** The same sizes and orders in every run; each order meets each kind of size. */
function transferOf(index: number, via: Via): Transfer {
  const closing = CLOSINGS[index % CLOSINGS.length] as Closing;
  return {
    seed: index,
    closing,
    bytesUp: closing === "target closes wholly, nothing was sent to it" ? 0 : size(2 * index, via),
    bytesDown: closing === "caller closes wholly, nothing comes back" ? 0 : size(2 * index + 1, via),
  };
}

/** Log-uniform: as many connections of some bytes as of some megabytes. */
function size(index: number, via: Via): number {
  if (index % EMPTY_EVERY === (via === "uds" ? 0 : 1)) return 0;
  const golden = 0.618_033_988_749_895; // spreads evenly however many are drawn
  return Math.floor(LARGEST ** ((index * golden) % 1));
}
