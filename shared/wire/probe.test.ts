import assert from "node:assert/strict";
import { duplexPair } from "node:stream";
import { test } from "node:test";
import fc from "fast-check";
import { CulvertError } from "../outcomes.ts";
import {
  encodeHead,
  encodeProbe,
  encodeProbeBegun,
  encodeProbeRefusal,
  PROBE_MODES,
  parseProbe,
  readProbeAnswer,
} from "./stream-head.ts";

/** A stream from which these bytes come, and then the end. */
function streamOf(bytes: Buffer) {
  const [near, far] = duplexPair();
  near.end(bytes);
  return far;
}

test("probes and their answers survive the wire", async () => {
  for (const mode of PROBE_MODES) assert.equal(parseProbe(encodeProbe(mode).subarray(2)), mode);
  assert.deepEqual(await readProbeAnswer(streamOf(encodeProbeBegun(1_790_000_000_000))), { time: 1_790_000_000_000 });
  assert.deepEqual(await readProbeAnswer(streamOf(encodeHead({ ok: true, later: 1 }))), { time: undefined });
  const refusal = encodeProbeRefusal(new CulvertError("limited", "later\r\nplease"));
  await assert.rejects(readProbeAnswer(streamOf(refusal)), { code: "limited", message: "later please" });
});

test("hostile bytes never do worse than a CulvertError", async () => {
  const json = fc.oneof(fc.uint8Array({ minLength: 1, maxLength: 200 }).map(Buffer.from), fc.json().map(Buffer.from));
  await fc.assert(
    fc.asyncProperty(json, async (bytes) => {
      const head = Buffer.alloc(2);
      head.writeUInt16BE(bytes.length);
      const [read] = await Promise.allSettled([readProbeAnswer(streamOf(Buffer.concat([head, bytes])))]);
      assert.ok(read.status === "fulfilled" || read.reason instanceof CulvertError);
      try {
        parseProbe(bytes);
      } catch (error) {
        assert.ok(error instanceof CulvertError);
      }
    }),
    { numRuns: 100 },
  );
});
