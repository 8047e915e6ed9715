import assert from "node:assert/strict";
import { duplexPair } from "node:stream";
import { test } from "node:test";
import { setImmediate as turn } from "node:timers/promises";
import { encodeHead } from "../../shared/wire/open.ts";
import { DuplexTransport } from "../../shared/yamux/duplex-transport.ts";
import { Session } from "../../shared/yamux/session.ts";
import type { Stream } from "../../shared/yamux/stream.ts";
import { download, NoProbes, openProbe, pingpong, upload } from "./measure.ts";
import { StepFailed } from "./steps.ts";

/** The doctor's session with a server that does this with each probe. */
function sessionWith(onStream: (stream: Stream) => void) {
  const [near, far] = duplexPair();
  const server = new Session("server", new DuplexTransport(near), {
    onStream: (stream) => onStream(stream.on("error", () => {}) as Stream),
    onClosed: () => {},
  });
  const doctor = new Session("client", new DuplexTransport(far), { onStream: () => {}, onClosed: () => {} });
  return {
    doctor,
    server,
    [Symbol.dispose]: () => {
      doctor.destroy();
      server.destroy();
    },
  };
}

const TAKEN = encodeHead({ ok: true });

test("a server of before probes, or one that has no time for them, is no fault", async () => {
  using older = sessionWith((stream) => stream.reset());
  await assert.rejects(openProbe(older.doctor, "echo"), (error) => {
    assert.ok(error instanceof NoProbes);
    assert.match(error.message, /older version/);
    return true;
  });
  using busy = sessionWith((stream) => stream.end(encodeHead({ error: "limited", detail: "try again" })));
  await assert.rejects(openProbe(busy.doctor, "sink"), (error) => error instanceof NoProbes);
});

test("a tunnel that is lost in the middle of a measurement is told as that", async () => {
  for (const measure of [upload, download]) {
    using world = sessionWith((stream) => {
      stream.write(TAKEN);
      stream.once("data", () => world.doctor.destroy(new Error("cut")));
      if (measure === download) stream.write("first bytes", () => world.doctor.destroy(new Error("cut")));
    });
    await assert.rejects(measure(world.doctor, 2_000), (error) => {
      assert.ok(error instanceof StepFailed, String(error));
      assert.equal(error.finding.culprit, "lost");
      return true;
    });
  }
});

test("round trips are counted one by one, also where the answer comes in pieces", async () => {
  using world = sessionWith((stream) => {
    stream.write(TAKEN);
    stream.on("data", (chunk: Buffer) => {
      for (const byte of chunk) stream.write(Buffer.of(byte));
    });
  });
  const { stream } = await openProbe(world.doctor, "echo");
  assert.match((await pingpong(stream)).detail, /^20 round trips: half within [\d.]+ ms, all [\d.]+ ms$/);
});

test("pieces of an answer that come in turns of their own are waited for", async () => {
  using world = sessionWith((stream) => {
    stream.write(TAKEN);
    stream.on("data", async (chunk: Buffer) => {
      stream.write(chunk.subarray(0, 1));
      await turn();
      stream.write(chunk.subarray(1));
    });
  });
  const { stream } = await openProbe(world.doctor, "echo");
  assert.match((await pingpong(stream)).detail, /^20 round trips/);
});

test("a server whose agents measure already is asked again when it says", async () => {
  let asked = 0;
  using world = sessionWith((stream) => {
    asked++;
    if (asked < 3) stream.end(encodeHead({ error: "limited", detail: "others measure now", retryAfterMs: 1 })).resume();
    else stream.write(TAKEN);
  });
  await openProbe(world.doctor, "echo");
  assert.equal(asked, 3);
});
