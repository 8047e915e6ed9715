import assert from "node:assert/strict";
import { test } from "node:test";
import { until } from "../basics/testing/wait.ts";
import { MemoryPool } from "../limits/memory-pool.ts";
import { pair } from "./testing/sessions.ts";

const KIB = 1024;
const MIB = 1024 * KIB;
const CAP = MIB;
const STREAMS = 96;
const WINDOW = 64 * KIB;
const READ_EVERY_MS = 20;

test("streams whose readers take a little again and again hold twice the cap of their cluster at most", async () => {
  const share = new MemoryPool(1024 * MIB).share("red");
  share.cap = CAP;
  const { client, server } = pair({ initialWindow: WINDOW, pool: share });
  for (let opened = 0; opened < STREAMS; opened++) client.session.open().on("error", () => {});
  await until(() => server.accepted.length === STREAMS);
  const streams = [...server.accepted];
  for (const stream of streams) stream.on("error", () => {});
  for (const stream of client.session.streams()) stream.write(Buffer.alloc(4 * WINDOW));
  const reading = setInterval(() => {
    for (const stream of streams) stream.read(1);
  }, READ_EVERY_MS);
  try {
    let most = 0;
    await until(() => {
      most = Math.max(most, share.held);
      return most > 5 * MIB;
    });
    await until(() => share.isFull);
    assert.throws(() => client.session.open(), { reason: "pool_full" });
    await until(() => share.held <= 2 * CAP);
    const left = streams.filter(({ destroyed }) => !destroyed).length;
    // 32 where all readers move. A test that stands still for 0.2 s makes them look stopped: what fits below the cap
    // stays.
    assert.ok(left * WINDOW >= 0.8 * CAP, `${left} of ${STREAMS} are left: no more are ended than must be`);
  } finally {
    clearInterval(reading);
    client.session.destroy();
    server.session.destroy();
  }
});
