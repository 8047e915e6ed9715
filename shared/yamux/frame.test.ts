import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";

import { Decoder, type FrameConsumer, header } from "./frame.ts";

const RUNS = process.env["CI"] === "true" ? 2_000 : 200;

type Event = readonly unknown[];

/** Notes every call; pieces of one payload are joined, because their split is nobody's business. */
class Recorder implements FrameConsumer {
  readonly events: Event[] = [];
  #payload: Buffer[] = [];

  onDataHeader(flags: number, streamId: number, length: number): void {
    this.events.push(["data", flags, streamId, length]);
  }
  onDataPiece(piece: Buffer): void {
    assert.ok(piece.length > 0, "no empty pieces");
    this.#payload.push(piece);
  }
  onDataEnd(flags: number): void {
    this.events.push(["end", flags, Buffer.concat(this.#payload).toString("hex")]);
    this.#payload = [];
  }
  onWindowUpdate(flags: number, streamId: number, delta: number): void {
    this.events.push(["window", flags, streamId, delta]);
  }
  onPing(flags: number, value: number): void {
    this.events.push(["ping", flags, value]);
  }
  onGoAway(code: number): void {
    this.events.push(["goAway", code]);
  }
}

interface Sample {
  readonly type: 0 | 1 | 2 | 3;
  readonly flags: number;
  readonly id: number;
  readonly value: number;
  readonly payload: Uint8Array;
}

const uint32 = fc.integer({ min: 0, max: 0xffff_ffff });
const sample: fc.Arbitrary<Sample> = fc.record({
  type: fc.constantFrom(0, 1, 2, 3),
  flags: fc.integer({ min: 0, max: 0xffff }),
  id: uint32,
  value: uint32,
  payload: fc.uint8Array({ maxLength: 100 }),
});

function encode({ type, flags, id, value, payload }: Sample): Buffer {
  return type === 0 ? Buffer.concat([header(0, flags, id, payload.length), payload]) : header(type, flags, id, value);
}

function expected({ type, flags, id, value, payload }: Sample): Event[] {
  if (type === 1) return [["window", flags, id, value]];
  if (type === 2) return [["ping", flags, value]];
  if (type === 3) return [["goAway", value]];
  return [
    ["data", flags, id, payload.length],
    ["end", flags, Buffer.from(payload).toString("hex")],
  ];
}

test("frames come out the same in whatever pieces their bytes arrive", () => {
  const property = fc.property(
    fc.array(sample, { maxLength: 12 }),
    fc.array(fc.integer({ min: 1, max: 40 }), { minLength: 1, maxLength: 30 }),
    (samples, cuts) => {
      const recorder = new Recorder();
      const decoder = new Decoder(recorder);
      const bytes = Buffer.concat(samples.map(encode));
      for (let at = 0, turn = 0; at < bytes.length; turn++) {
        const size = cuts[turn % cuts.length] as number;
        decoder.push(bytes.subarray(at, at + size));
        at += size;
      }
      assert.deepEqual(recorder.events, samples.flatMap(expected));
      assert.equal(decoder.atBoundary, true);
    },
  );
  fc.assert(property, { numRuns: RUNS });
});

test("a header reads back as it was written", () => {
  const property = fc.property(
    fc.constantFrom(0, 1, 2, 3),
    fc.nat(0xffff),
    uint32,
    uint32,
    (type, flags, id, length) => {
      const bytes = header(type, flags, id, length);
      const seen = [bytes[0], bytes[1], bytes.readUInt16BE(2), bytes.readUInt32BE(4), bytes.readUInt32BE(8)];
      assert.deepEqual([...seen, bytes.length], [0, type, flags, id, length, 12]);
    },
  );
  fc.assert(property, { numRuns: RUNS });
});

const WRONG: ReadonlyArray<readonly [name: string, bytes: string, message: RegExp]> = [
  ["version 1", "010000000000000100000000", /unknown yamux version 1/],
  ["version 255", "ff0000000000000100000000", /unknown yamux version 255/],
  ["type 4", "000400000000000100000000", /unknown frame type 4/],
  ["type 255", "00ff00000000000100000000", /unknown frame type 255/],
  ["HTTP instead of yamux", Buffer.from("GET / HTTP/1.1\r\n").toString("hex"), /unknown yamux version 71/],
];

for (const [name, bytes, message] of WRONG) {
  test(`${name} is refused, in one chunk and byte by byte`, () => {
    const whole = Buffer.from(bytes, "hex");
    assert.throws(() => new Decoder(new Recorder()).push(whole), { reason: "protocol", message });
    const decoder = new Decoder(new Recorder());
    assert.throws(
      () => {
        for (const byte of whole) decoder.push(Buffer.of(byte));
      },
      { reason: "protocol", message },
    );
  });
}

test("the decoder is at a boundary only between frames", () => {
  const decoder = new Decoder(new Recorder());
  const bytes = Buffer.concat([header(0, 0, 1, 2), Buffer.from("ab"), header(2, 1, 0, 7)]);
  const boundaries: number[] = [];
  for (let at = 0; at < bytes.length; at++) {
    decoder.push(bytes.subarray(at, at + 1));
    if (decoder.atBoundary) boundaries.push(at + 1);
  }
  assert.deepEqual(boundaries, [14, 26]);
});

test("a claimed length of 4 GiB is reported at once and takes no memory", () => {
  const recorder = new Recorder();
  const decoder = new Decoder(recorder);
  const before = process.memoryUsage();
  decoder.push(header(0, 0, 1, 0xffff_ffff));
  const after = process.memoryUsage();
  assert.deepEqual(recorder.events, [["data", 0, 1, 0xffff_ffff]]);
  assert.ok(after.arrayBuffers - before.arrayBuffers < 1024 * 1024);
});

test("payload is handed on as slices of what arrived, never copied", () => {
  const pieces: Buffer[] = [];
  const recorder = new Recorder();
  recorder.onDataPiece = (piece) => pieces.push(piece);
  const chunk = Buffer.concat([header(0, 0, 1, 4), Buffer.from("abcd")]);
  new Decoder(recorder).push(chunk);
  assert.equal(pieces[0]?.buffer, chunk.buffer);
});

test("a stopped decoder leaves the rest of the chunk alone", () => {
  const recorder = new Recorder();
  const decoder = new Decoder(recorder);
  recorder.onPing = () => decoder.stop();
  decoder.push(Buffer.concat([header(2, 1, 0, 1), header(3, 0, 0, 0)]));
  decoder.push(header(3, 0, 0, 0));
  assert.deepEqual(recorder.events, []);
});
