import assert from "node:assert/strict";
import type { Writable } from "node:stream";
import { test } from "node:test";
import { setImmediate as turn } from "node:timers/promises";
import fc from "fast-check";
import * as ws from "ws";
import { FrameParser, frameHeader } from "./frames.ts";
import { type FrameShape, frame } from "./testing/frames.ts";

const MAX_PAYLOAD = 16 * 1024 * 1024;

/** ws exports its parser, its types do not say so. */
const { Receiver } = ws as unknown as {
  Receiver: new (options: { isServer: boolean; maxPayload: number }) => Writable;
};

/** ws's own parser as the oracle: what it delivers, and whether it objects. */
class Oracle {
  readonly binary: Buffer[] = [];
  readonly others: string[] = [];
  error: Error | undefined;
  readonly #receiver: Writable;
  #over = false;

  constructor(isServer: boolean) {
    this.#receiver = new Receiver({ isServer, maxPayload: MAX_PAYLOAD });
    this.#receiver.on("message", (data: Buffer, isBinary: boolean) => {
      if (isBinary) this.binary.push(Buffer.from(data));
      else this.others.push(`text ${data.toString("hex")}`);
    });
    for (const name of ["ping", "pong"]) {
      this.#receiver.on(name, (data: Buffer) => this.others.push(`${name} ${data.toString("hex")}`));
    }
    this.#receiver.on("conclude", (code: number) => {
      this.others.push(`close ${code}`);
      this.#over = true; // ws itself stops listening to its socket here
    });
    this.#receiver.on("error", (error: Error) => {
      this.error = error;
      this.#over = true;
    });
  }

  push(chunk: Buffer): void {
    if (!this.#over) this.#receiver.write(Buffer.from(chunk)); // a copy: both sides unmask in place
  }
}

/** A lane that keeps what it says. */
class Heard {
  readonly payload: Buffer[] = [];
  readonly other: Buffer[] = [];
  /** Pings and short texts, as an `Oracle` tells them. */
  readonly short: string[] = [];
  readonly closes: Buffer[] = [];
  violation: string | undefined;
  readonly lane: FrameParser;

  constructor(peerMasks: boolean, toWs: (bytes: Buffer) => void = () => {}) {
    const mask = peerMasks ? { mask: Buffer.alloc(4) } : {};
    this.lane = new FrameParser(peerMasks, {
      onPayload: (piece) => this.payload.push(piece),
      // To ws too, which tells of it in its place: so the order shows.
      onPing: (payload) => {
        this.short.push(`ping ${payload.toString("hex")}`);
        toWs(frame({ opcode: 9, payload, ...mask }));
      },
      onText: (payload) => {
        this.short.push(`text ${payload.toString("hex")}`);
        toWs(frame({ opcode: 1, payload, ...mask }));
      },
      onOther: (bytes) => {
        this.other.push(bytes);
        toWs(bytes);
      },
      onClose: (payload) => this.closes.push(payload),
      onViolation: (sentence) => {
        assert.equal(this.violation, undefined, "said once");
        this.violation = sentence;
      },
    });
  }
}

/** Cuts `bytes` into chunks of these sizes, over and over; each is a buffer of its own, as from a socket. */
function cut(bytes: Buffer, sizes: readonly number[]): Buffer[] {
  const chunks: Buffer[] = [];
  for (let at = 0, index = 0; at < bytes.length; index++) {
    const size = sizes[index % sizes.length] as number;
    chunks.push(Buffer.from(bytes.subarray(at, at + size)));
    at += size;
  }
  return chunks;
}

const bytesOf = (maxLength: number) => fc.uint8Array({ maxLength }).map((array) => Buffer.from(array));
const maskKey = fc.oneof(
  fc.constant(Buffer.alloc(4)),
  fc.uint8Array({ minLength: 4, maxLength: 4 }).map((array) => Buffer.from(array)),
);
const sizes = fc.array(fc.oneof(fc.integer({ min: 1, max: 9 }), fc.integer({ min: 1, max: 400 })), {
  minLength: 1,
  maxLength: 20,
});
const lengthBytes = fc.constantFrom(undefined, undefined, 2 as const, 8 as const);
const data = fc.oneof(
  { weight: 20, arbitrary: bytesOf(200) },
  { weight: 1, arbitrary: fc.integer({ min: 65_530, max: 65_540 }).map(Buffer.alloc) },
);
const ping = fc.record({ opcode: fc.constantFrom(9, 10), payload: bytesOf(125) });

/** A message of one or more fragments, pings between them. */
const message = fc
  .record({
    opcode: fc.constantFrom(1, 2, 2, 2),
    fragments: fc.array(fc.record({ payload: data, lengthBytes, pings: fc.array(ping, { maxLength: 2 }) }), {
      minLength: 1,
      maxLength: 4,
    }),
  })
  .map(({ opcode, fragments }) =>
    fragments.flatMap(({ payload, lengthBytes: form, pings }, index): FrameShape[] => {
      const final = index === fragments.length - 1;
      // Text must be UTF-8, and a fragment of it may not cut a character.
      const content = opcode === 1 ? Buffer.from(payload.toString("base64")) : payload;
      const shape = { opcode: index === 0 ? opcode : 0, payload: content, final };
      return [form === undefined || content.length > 60_000 ? shape : { ...shape, lengthBytes: form }, ...pings];
    }),
  );

function isShortText({ opcode, final, payload }: FrameShape): boolean {
  return opcode === 1 && final === true && (payload as Buffer).length <= 125;
}

for (const peerMasks of [true, false]) {
  const side = peerMasks ? "a client" : "a server";

  test(`payload from ${side} comes out whole and in order, pings and short texts too, and all else reaches ws verbatim, in any split`, () => {
    fc.assert(
      fc.property(
        fc.array(message, { maxLength: 12 }),
        fc.array(maskKey, { minLength: 1 }),
        sizes,
        (messages, keys, by) => {
          const heard = new Heard(peerMasks);
          const wire: Buffer[] = [];
          const payload: Buffer[] = [];
          const other: Buffer[] = [];
          const short: string[] = [];
          let binary = false;
          for (const [index, shape] of messages.flat().entries()) {
            const bytes = frame(peerMasks ? { ...shape, mask: keys[index % keys.length] as Buffer } : shape);
            wire.push(bytes);
            if (shape.opcode === 1 || shape.opcode === 2) binary = shape.opcode === 2;
            if (shape.opcode < 8 && binary) payload.push(shape.payload as Buffer);
            else if (shape.opcode === 9) short.push(`ping ${shape.payload?.toString("hex")}`);
            else if (isShortText(shape)) short.push(`text ${shape.payload?.toString("hex")}`);
            else other.push(bytes);
          }
          for (const chunk of cut(Buffer.concat(wire), by)) heard.lane.push(chunk);
          assert.equal(heard.violation, undefined);
          assert.ok(Buffer.concat(heard.payload).equals(Buffer.concat(payload)), "payload");
          assert.ok(Buffer.concat(heard.other).equals(Buffer.concat(other)), "the rest");
          assert.deepEqual(heard.short, short);
        },
      ),
      { numRuns: 150 },
    );
  });

  test(`whatever frames ${side} sends, parser and ws together refuse exactly what ws alone would`, async () => {
    const anyFrame = fc.record({
      opcode: fc.oneof({ weight: 6, arbitrary: fc.constantFrom(0, 1, 2, 2, 8, 9) }, fc.integer({ min: 0, max: 15 })),
      payload: fc.oneof(fc.constantFrom(Buffer.from("ok"), Buffer.from([0x03, 0xe8])), bytesOf(130)),
      final: fc.oneof({ weight: 3, arbitrary: fc.constant(true) }, fc.constant(false)),
      masked: fc.oneof({ weight: 30, arbitrary: fc.constant(peerMasks) }, fc.constant(!peerMasks)),
      key: maskKey,
      reserved: fc.oneof({ weight: 30, arbitrary: fc.constant(0) }, fc.constantFrom(0x10, 0x20, 0x40)),
      huge: fc.oneof(
        { weight: 30, arbitrary: fc.constant(undefined) },
        fc.constantFrom(1n << 25n, 1n << 40n, (1n << 64n) - 1n),
      ),
    });
    await fc.assert(
      fc.asyncProperty(fc.array(anyFrame, { minLength: 1, maxLength: 8 }), sizes, async (shapes, by) => {
        const wire = shapes.map(({ masked, key, huge, ...shape }) =>
          frame({ ...shape, ...(masked ? { mask: key } : {}), ...(huge ? { claims: huge } : {}) }),
        );
        const alone = new Oracle(peerMasks);
        const behind = new Oracle(peerMasks);
        const heard = new Heard(peerMasks, (bytes) => behind.push(bytes));
        for (const chunk of cut(Buffer.concat(wire), by)) {
          alone.push(chunk);
          heard.lane.push(chunk);
          await null; // an error of ws comes a tick later
        }
        await turn();
        const objected = heard.violation !== undefined || behind.error !== undefined;
        assert.equal(objected, alone.error !== undefined, `${heard.violation} / ${behind.error} / ${alone.error}`);
        if (!objected) assert.deepEqual(behind.others, alone.others);
        const delivered = Buffer.concat(alone.binary);
        assert.ok(Buffer.concat(heard.payload).subarray(0, delivered.length).equals(delivered), "payload");
      }),
      { numRuns: 600 },
    );
  });
}

const KEY = Buffer.from([1, 2, 3, 4]);
const TEXT = { opcode: 1, payload: Buffer.from("hi"), mask: KEY };
const BINARY = { opcode: 2, payload: Buffer.from("hi"), mask: KEY };
/** The beginning of a binary message. */
const BEGUN = { ...BINARY, final: false };

test("a violation that ws could not notice is reported on the header of the frame", () => {
  const table: [string, FrameShape[], RegExp][] = [
    ["text inside binary", [BEGUN, TEXT], /inside another/],
    ["binary inside binary", [BEGUN, BINARY], /inside another/],
    ["a reserved kind inside binary", [BEGUN, { ...BINARY, opcode: 5 }], /inside another/],
    ["16 MiB and a byte", [{ ...BINARY, claims: 16n * 1024n * 1024n + 1n }], /16777217 bytes is too long/],
    ["2^63 bytes", [{ ...BINARY, claims: 1n << 63n }], /too long/],
    ["2^64 - 1 bytes", [{ ...BINARY, claims: (1n << 64n) - 1n }], /too long/],
    ["a long continuation", [BEGUN, { ...BINARY, opcode: 0, claims: 1n << 40n }], /too long/],
  ];
  for (const [name, shapes, expected] of table) {
    const heard = new Heard(true);
    const wire = Buffer.concat(shapes.map(frame));
    for (const chunk of cut(wire.subarray(0, wire.length - 2), [1])) heard.lane.push(chunk);
    assert.match(heard.violation ?? "none", expected, name);
    heard.lane.push(frame(BINARY));
    assert.ok(Buffer.concat(heard.payload).length <= 2, `${name}: nothing behind it counts`);
  }
});

test("a frame that is not well formed goes to ws with all that follows", () => {
  const table: [string, FrameShape[]][] = [
    ["reserved bit 1", [{ ...BINARY, reserved: 0x40 }]],
    ["reserved bit 3", [{ ...BINARY, reserved: 0x10 }]],
    ["no mask from a client", [{ opcode: 2, payload: Buffer.from("hi") }]],
    ["binary inside text", [{ ...TEXT, final: false }, BINARY]],
    ["text inside text", [{ ...TEXT, final: false }, TEXT]],
    ["text with a reserved bit", [{ ...TEXT, reserved: 0x40 }]],
    ["a kind that is none, with all bits set", [{ ...TEXT, opcode: 15, reserved: 0x70 }]],
    ["text without a mask from a client", [{ opcode: 1, payload: Buffer.from("hi") }]],
    ["a continuation without a start", [{ ...BINARY, opcode: 0 }]],
    ["a reserved bit in a continuation", [BEGUN, { ...BINARY, opcode: 0, reserved: 0x20 }]],
  ];
  for (const [name, shapes] of table) {
    const heard = new Heard(true);
    const behind = [BINARY, BEGUN, TEXT].map(frame);
    const last = Buffer.concat([frame(shapes.at(-1) as FrameShape), ...behind]);
    for (const chunk of cut(Buffer.concat([...shapes.slice(0, -1).map(frame), last]), [3])) heard.lane.push(chunk);
    assert.equal(heard.violation, undefined, name);
    assert.ok(Buffer.concat(heard.other).subarray(-last.length).equals(last), name);
  }
});

const BAD_LENGTH = "WS_ERR_INVALID_CONTROL_PAYLOAD_LENGTH";

test("a continuation without a start, long control frames and unknown kinds are left to ws, which refuses them", async () => {
  const table: [string, FrameShape, string][] = [
    ["continuation without start", { ...BINARY, opcode: 0 }, "WS_ERR_INVALID_OPCODE"],
    ["a ping of 126 bytes", { opcode: 9, payload: Buffer.alloc(126), mask: KEY }, BAD_LENGTH],
    ["a ping that claims 2^40 bytes", { opcode: 9, claims: 1n << 40n, mask: KEY }, BAD_LENGTH],
    ["a ping in fragments", { opcode: 9, final: false, mask: KEY }, "WS_ERR_EXPECTED_FIN"],
    ["a close of one byte", { opcode: 8, payload: Buffer.alloc(1), mask: KEY }, BAD_LENGTH],
    ["kind 3", { ...BINARY, opcode: 3 }, "WS_ERR_INVALID_OPCODE"],
    ["kind 15", { ...BINARY, opcode: 15 }, "WS_ERR_INVALID_OPCODE"],
    ["text that claims 2^40 bytes", { ...TEXT, claims: 1n << 40n }, "WS_ERR_UNSUPPORTED_MESSAGE_LENGTH"],
    ["text without a mask", { opcode: 1, payload: Buffer.from("hi") }, "WS_ERR_EXPECTED_MASK"],
  ];
  for (const [name, shape, code] of table) {
    const oracle = new Oracle(true);
    const heard = new Heard(true, (bytes) => oracle.push(bytes));
    heard.lane.push(frame(shape));
    await turn();
    assert.equal(heard.violation, undefined, name);
    assert.equal((oracle.error as NodeJS.ErrnoException | undefined)?.code, code, name);
  }
});

test("a short text that is no UTF-8 is left to ws, whole and in its place", async () => {
  const oracle = new Oracle(true);
  const heard = new Heard(true, (bytes) => oracle.push(bytes));
  const wire = Buffer.concat([frame(TEXT), frame({ ...TEXT, payload: Buffer.from([0x68, 0xff]) }), frame(TEXT)]);
  for (const chunk of cut(wire, [3])) heard.lane.push(chunk);
  await turn();
  assert.equal((oracle.error as NodeJS.ErrnoException | undefined)?.code, "WS_ERR_INVALID_UTF8");
  assert.deepEqual(oracle.others, ["text 6869"], "what came before it");
});

/** 1000 (RFC 6455 §7.4.1). */
const CODE = Buffer.from([0x03, 0xe8]);

test("nothing is read behind a close frame", () => {
  const close = frame({ opcode: 8, payload: CODE, mask: KEY });
  const heard = new Heard(true);
  for (const chunk of cut(Buffer.concat([frame(BINARY), close, frame(BINARY), frame(TEXT)]), [5]))
    heard.lane.push(chunk);
  assert.equal(Buffer.concat(heard.payload).toString(), "hi");
  assert.ok(Buffer.concat(heard.other).equals(frame({ opcode: 8, payload: CODE, mask: Buffer.alloc(4) })));
  assert.deepEqual(heard.closes, [CODE]);
});

const FLOODS: Readonly<Record<string, Buffer>> = {
  "empty messages": frame({ opcode: 2, mask: KEY }),
  "empty fragments": frame({ opcode: 0, final: false, mask: KEY }),
  pings: frame({ opcode: 9, mask: KEY }),
  pongs: frame({ opcode: 10, mask: KEY }),
  "short texts": frame({ opcode: 1, payload: Buffer.from("{}"), mask: KEY }),
};

for (const [name, one] of Object.entries(FLOODS)) {
  test(`a flood of ${name} is a violation, in the middle of a chunk; 20,000 a second are none`, (t) => {
    let now = 0;
    t.mock.method(performance, "now", () => now);
    const heard = new Heard(true);
    if (name === "empty fragments") heard.lane.push(frame({ opcode: 2, final: false, mask: KEY }));
    const push = (count: number) => heard.lane.push(Buffer.concat(Array.from({ length: count }, () => one)));
    for (let second = 0; second < 3; second++) {
      now = second * 1_000;
      push(20_001);
    }
    assert.equal(heard.violation, undefined);
    push(50_000);
    assert.match(heard.violation ?? "", /more than 20000 frames a second carry no payload/);
    const { length } = heard.short;
    push(1);
    assert.equal(heard.short.length, length, "it has stopped");
  });
}

for (const [bytes, isFlood] of [
  [1, true],
  [13, true],
  [63, true],
  [64, false],
] as const) {
  test(`payload of ${bytes} bytes in each frame: 100,000 a second pass, and more ${isFlood ? "is a flood" : "as well"}`, (t) => {
    let now = 0;
    t.mock.method(performance, "now", () => now);
    const heard = new Heard(true);
    const one = frame({ opcode: 2, payload: Buffer.alloc(bytes), mask: KEY });
    const frames = Buffer.concat(Array.from({ length: 100_001 }, () => one));
    for (let second = 0; second < 2; second++) {
      now = second * 1_000;
      heard.lane.push(frames);
    }
    assert.deepEqual([heard.violation, heard.payload.length], [undefined, 200_002]);
    heard.lane.push(frames);
    if (isFlood) assert.match(heard.violation ?? "", /or 100000 less than 64 bytes/);
    else assert.equal(heard.violation, undefined);
  });
}

test("the header we write is that of a whole message to ws, for every length form and from both sides", () => {
  const lengths = [0, 1, 125, 126, 127, 65_535, 65_536, 65_600, 1_000_000];
  for (const opcode of [1, 2] as const) {
    for (const masked of [true, false]) {
      for (const length of lengths) {
        const payload = Buffer.alloc(length, 7);
        const header = frameHeader(opcode, length, masked);
        const whole = frame({ opcode, payload, ...(masked ? { mask: Buffer.alloc(4) } : {}) });
        assert.ok(header.equals(whole.subarray(0, header.length)));
        const oracle = new Oracle(masked);
        const heard = new Heard(masked);
        for (const chunk of [header, payload]) {
          oracle.push(chunk);
          heard.lane.push(chunk);
        }
        const got = opcode === 1 ? oracle.others : oracle.binary.map((data) => `text ${data.toString("hex")}`);
        assert.deepEqual([oracle.error, ...got], [undefined, `text ${payload.toString("hex")}`]);
        if (opcode === 2) assert.equal(Buffer.concat(heard.payload).length, length);
        else if (length <= 125) assert.deepEqual(heard.short, got);
        else assert.ok(Buffer.concat(heard.other).equals(Buffer.concat([header, payload])));
      }
    }
  }
});

test("a ping or short text is delivered with its payload, in any split and at any place, and does not reach ws", () => {
  for (const mask of [undefined, Buffer.alloc(4), Buffer.from([1, 2, 3, 4])]) {
    const shape = (opcode: number, words: string, final = true) =>
      frame({ opcode, payload: Buffer.from(words), final, ...(mask ? { mask } : {}) });
    const bytes = Buffer.concat([
      shape(9, ""),
      shape(2, "pay", false),
      shape(9, "x".repeat(125)),
      shape(0, "load"),
      shape(9, "last"),
      shape(1, ""),
      shape(1, "y".repeat(125)),
    ]);
    const told = (kind: string, words: string) => `${kind} ${Buffer.from(words).toString("hex")}`;
    for (const size of [1, 3, 1_000]) {
      const heard = new Heard(mask !== undefined);
      for (const chunk of cut(bytes, [size])) heard.lane.push(chunk);
      assert.deepEqual(heard.short, [
        told("ping", ""),
        told("ping", "x".repeat(125)),
        told("ping", "last"),
        told("text", ""),
        told("text", "y".repeat(125)),
      ]);
      assert.deepEqual([Buffer.concat(heard.payload).toString(), heard.other.length], ["payload", 0]);
    }
  }
});
