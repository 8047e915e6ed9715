import assert from "node:assert/strict";
import { Duplex } from "node:stream";
import { type TestContext, test } from "node:test";
import { until } from "../basics/testing/wait.ts";
import { RECLAIM, reclaim } from "../limits/memory-account.ts";
import { MemoryPool } from "../limits/memory-pool.ts";
import type { Stream } from "../yamux/stream.ts";
import { openStream, pair } from "../yamux/testing/sessions.ts";
import { splice } from "./splice.ts";

const KIB = 1024;
const CONNECTIONS = 15;
const WINDOW = 256 * KIB;

/** A caller that takes nothing. */
class Stuck extends Duplex {
  override _read(): void {}

  override _write(): void {}
}

/**
 * Connections that hold the same each, in the splice and in the stream, for callers that have taken nothing for 0.2 s.
 */
async function stalled(t: TestContext) {
  const share = new MemoryPool(1e9).share("red");
  const ends = pair({ initialWindow: WINDOW, maxWindow: WINDOW, pool: share });
  const streams: Stream[] = [];
  for (let number = 0; number < CONNECTIONS; number++) {
    const [near, stream] = await openStream(ends);
    void splice(new Stuck(), stream, { memory: share });
    near.write(Buffer.alloc(8 * WINDOW));
    streams.push(stream);
  }
  t.after(() => {
    ends.client.session.destroy();
    ends.server.session.destroy();
  });
  await until(() => share.held >= CONNECTIONS * WINDOW);
  const stands = performance.now();
  await until(() => performance.now() - stands > 300);
  return { share, ends, streams };
}

test("no more connections are ended than are needed, though each holds some in its stream and some in its splice", async (t) => {
  const { share, streams } = await stalled(t);
  const needed = share.held / 5;
  const isEnough = () => share.held <= 4 * needed;
  assert.equal(reclaim(streams, isEnough, performance.now(), RECLAIM.stalled), CONNECTIONS / 5);
});

test("what the splices of a tunnel hold stops counting at the moment when its session is lost", async (t) => {
  const { share, ends } = await stalled(t);
  ends.server.session.destroy();
  assert.equal(share.held, 0);
});
