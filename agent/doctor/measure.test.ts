import assert from "node:assert/strict";
import { duplexPair } from "node:stream";
import { test } from "node:test";
import { setImmediate as turn } from "node:timers/promises";
import { encodeHead } from "../../shared/wire/stream-head.ts";
import { Session } from "../../shared/yamux/session.ts";
import type { Stream } from "../../shared/yamux/stream.ts";
import { DuplexTransport } from "../../shared/yamux/testing/duplex-transport.ts";
import { download, NoProbes, openProbe, pingpong, upload } from "./measure.ts";
import { PacedPipe } from "./paced-pipe.ts";
import { StepFailed } from "./report.ts";

/** The doctor's session with a server that does this with each probe. */
function sessionWith(onStream: (stream: Stream) => void) {
  const [near, far] = duplexPair();
  const server = new Session("server", new DuplexTransport(near), {
    onStream: (stream) => onStream(stream.on("error", () => {}) as Stream),
    onClosed: () => {},
  });
  const pipe = new PacedPipe(new DuplexTransport(far), { unacknowledged: 0 });
  const session = new Session("client", pipe, { onStream: () => {}, onClosed: () => {} });
  return {
    doctor: { session, pipe },
    server,
    [Symbol.dispose]: () => {
      session.destroy();
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

test("a tunnel that is lost in the middle of a measurement is reported as that", async () => {
  for (const measure of [upload, download]) {
    using world = sessionWith((stream) => {
      stream.write(TAKEN);
      stream.once("data", () => world.doctor.session.destroy(new Error("cut")));
      if (measure === download) stream.write("first bytes", () => world.doctor.session.destroy(new Error("cut")));
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
  assert.match((await pingpong(world.doctor, stream)).detail, /^20 round trips: half within [\d.]+ ms, all [\d.]+ ms$/);
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
  assert.match((await pingpong(world.doctor, stream)).detail, /^20 round trips/);
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

/** A way on which nothing arrives any more, once it is told. */
class HeldPipe extends PacedPipe {
  isHeld = false;

  override get stalledMs(): number {
    return this.isHeld ? 60_000 : 0;
  }
}

test("an upload of which nothing arrives is held back", async (t) => {
  t.mock.timers.enable({ apis: ["setTimeout"] });
  const [near, far] = duplexPair();
  const pipe = new HeldPipe(new DuplexTransport(far), { unacknowledged: 0 });
  const session = new Session("client", pipe, { onStream: () => {}, onClosed: () => {} });
  const server = new Session("server", new DuplexTransport(near), {
    onStream: (stream) => {
      stream.on("error", () => {});
      stream.write(TAKEN);
      stream.once("data", () => stream.once("data", () => (pipe.isHeld = true)));
    },
    onClosed: () => {},
  });
  const uploading = upload({ session, pipe }, 20_000);
  uploading.catch(() => {});
  while (!pipe.isHeld) await turn();
  t.mock.timers.tick(8_000);
  await assert.rejects(uploading, (error) => {
    assert.ok(error instanceof StepFailed, String(error));
    assert.equal(error.finding.culprit, "held_back");
    return true;
  });
  session.destroy();
  server.destroy();
});

test("a measurement that the server ends is no fault of the way: what has come until then counts", async () => {
  using pouring = sessionWith((stream) => {
    stream.write(TAKEN);
    stream.write(Buffer.alloc(100_000), () => setImmediate(() => stream.reset()));
  });
  assert.match((await download(pouring.doctor, 60_000)).detail, /bit\/s$/);
  using taking = sessionWith((stream) => {
    stream.write(TAKEN);
    stream.once("data", () => stream.on("data", () => stream.reset()));
  });
  assert.match((await upload(taking.doctor, 60_000)).detail, /bit\/s$/);
  using echoing = sessionWith((stream) => {
    stream.write(TAKEN, () => stream.once("data", () => stream.reset()));
  });
  const { stream } = await openProbe(echoing.doctor, "echo");
  await assert.rejects(pingpong(echoing.doctor, stream), (error) => error instanceof NoProbes);
});
