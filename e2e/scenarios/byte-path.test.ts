import assert from "node:assert/strict";
import { test } from "node:test";
import { listedFiles, productCalls } from "../harness/product-calls.ts";
import { startWorld } from "../harness/world.ts";

const ROUNDS = 400;
/** More than the checks of TLS overhead: 20 a second for each of two TLS connections. */
const TIMER_CALLS_PER_SECOND = 100;
const SMALL = Buffer.alloc(100);
/** Every fifth round, so that streams and sockets are full for a while, too. */
const LARGE = Buffer.alloc(256 * 1024);

test("a byte of an open connection passes the files that docs/architecture.md lists, and no others", async () => {
  await using world = await startWorld({ targets: ["echo"] });
  await using connection = await world.connect("echo", { via: "tls" });
  const exchange = async (rounds: number): Promise<void> => {
    for (let round = 0; round < rounds; round++) {
      const message = round % 5 === 0 ? LARGE : SMALL;
      await connection.send(message);
      await connection.readBytes(message.length);
    }
  };
  await exchange(20);
  const startedAt = performance.now();
  const ran = await productCalls(() => exchange(ROUNDS));
  const seconds = (performance.now() - startedAt) / 1_000;
  const files = listedFiles("The path of a byte", 1);
  assert.ok(files.length > 0, "the page has the list");
  assert.deepEqual(
    files.filter((file) => !ran.get(file)),
    [],
    "nothing of these files ran",
  );
  // Timers run less often than there are rounds, unless a busy machine needs many seconds for the rounds.
  const fewest = Math.max(ROUNDS, seconds * TIMER_CALLS_PER_SECOND);
  const often = [...ran].filter(([, count]) => count >= fewest).map(([file]) => file);
  assert.deepEqual(
    often.filter((file) => !files.includes(file)),
    [],
    "these files are not listed",
  );
});
