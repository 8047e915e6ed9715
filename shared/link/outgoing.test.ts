import assert from "node:assert/strict";
import { test } from "node:test";
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import fc from "fast-check";
import { bytesIn } from "../basics/bytes.ts";
import { until } from "../basics/testing/wait.ts";
import { Replay } from "./outgoing.ts";

setFlagsFromString("--expose-gc");
const collect: (options?: { type: "minor" }) => void = runInNewContext("gc");

/** Byte `offset` of a link, whoever asks. */
const byteAt = (offset: number): number => (offset * 31) % 251;
const bytesFrom = (offset: number, length: number): Buffer =>
  Buffer.from(Array.from({ length }, (_, index) => byteAt(offset + index)));

test("whatever was appended and acknowledged, what is read are the bytes of the link from there on", () => {
  const step = fc.oneof(
    { weight: 3, arbitrary: fc.record({ do: fc.constant("append" as const), sizes: fc.array(fc.nat(5)) }) },
    { weight: 2, arbitrary: fc.record({ do: fc.constant("acknowledge" as const), share: fc.nat(100) }) },
    { weight: 1, arbitrary: fc.record({ do: fc.constant("clear" as const) }) },
  );
  const property = fc.property(
    fc.array(step, { maxLength: 300, size: "max" }),
    fc.nat(100),
    fc.nat(50),
    (steps, share, least) => {
      const replay = new Replay();
      let [acked, end] = [0, 0];
      const within = (percent: number): number => acked + Math.floor(((end - acked) * percent) / 100);
      for (const each of steps) {
        if (each.do === "append") {
          const buffers: Buffer[] = [];
          for (const size of each.sizes) {
            buffers.push(bytesFrom(end, size));
            end += size;
          }
          replay.append(buffers, bytesIn(buffers));
        } else if (each.do === "acknowledge") {
          acked = within(each.share);
          replay.acknowledge(acked);
        } else {
          acked = end;
          replay.clear();
        }
        assert.deepEqual([replay.acked, replay.end, replay.bytes], [acked, end, end - acked]);
      }
      const from = within(share);
      const { buffers, byteLength } = replay.read(from, least);
      assert.ok(byteLength >= Math.min(least, end - from) && byteLength <= end - from);
      assert.deepEqual(Buffer.concat(buffers), bytesFrom(from, byteLength));
    },
  );
  fc.assert(property, { numRuns: 200 });
});

test("what is acknowledged is free at the next minor collection, also when the place where it was kept is old", async () => {
  const KIB = 1024;
  const send = (batches: number): void => {
    for (let count = 0; count < batches; count++) replay.append([Buffer.allocUnsafeSlow(64 * KIB)], 64 * KIB);
  };
  const replay = new Replay();
  send(200);
  collect();
  collect();
  replay.acknowledge(190 * 64 * KIB);
  const before = process.memoryUsage().arrayBuffers;
  send(100);
  replay.acknowledge(280 * 64 * KIB);
  send(300); // more than there was ever room for
  replay.acknowledge(replay.end);
  collect({ type: "minor" });
  // V8 frees what it has collected beside the program.
  await until(() => process.memoryUsage().arrayBuffers - before < 512 * KIB);
});
