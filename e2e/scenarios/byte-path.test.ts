import assert from "node:assert/strict";
import { test } from "node:test";
import { listedFiles, productCalls } from "../harness/product-calls.ts";
import { startWorld } from "../harness/world.ts";

const ROUNDS = 400;
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
  const ran = await productCalls(() => exchange(ROUNDS));
  const files = listedFiles("The path of a byte", 1);
  assert.ok(files.length > 0, "the page has the list");
  assert.deepEqual(
    files.filter((file) => !ran.get(file)),
    [],
    "nothing of these files ran",
  );
  // Functions that a timer calls run less often than there are rounds.
  const often = [...ran].filter(([, count]) => count >= ROUNDS).map(([file]) => file);
  assert.deepEqual(
    often.filter((file) => !files.includes(file)),
    [],
    "these files are not listed",
  );
});
