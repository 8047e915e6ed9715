import assert from "node:assert/strict";
import { test } from "node:test";
import { create, toBinary } from "@bufbuild/protobuf";
import fc from "fast-check";
import { type Packet, PacketSchema, PacketType } from "./client_pb.ts";
import { encodeData } from "./data.ts";
import { type ControlPacket, encodePacket } from "./packet.ts";
import { MalformedPackets, PacketReader } from "./packet-reader.ts";

type Payload = Packet["payload"];

/** A packet as the library writes it, in a gRPC message. */
function byLibrary(type: PacketType, payload: Payload): Buffer {
  return message(toBinary(PacketSchema, create(PacketSchema, { type, payload })));
}

function message(bytes: Uint8Array): Buffer {
  const head = Buffer.alloc(5);
  head.writeUInt32BE(bytes.length, 1);
  return Buffer.concat([head, bytes]);
}

function data(connectID: bigint, bytes: Buffer): Buffer {
  return byLibrary(PacketType.DATA, { case: "data", value: { connectID, error: "", data: bytes } as never });
}

/** Everything that a reader has passed on; DATA that follows DATA of the same connection is joined. */
class Received {
  readonly packets: (ControlPacket | { case: "data"; connectID: bigint; bytes: string })[] = [];
  readonly reader = new PacketReader(this);

  onData(connectID: bigint, part: Buffer): void {
    const last = this.packets.at(-1);
    const bytes = part.toString("hex");
    if (last?.case === "data" && "bytes" in last && last.connectID === connectID) last.bytes += bytes;
    else this.packets.push({ case: "data", connectID, bytes });
  }

  onPacket({ case: name, value }: ControlPacket): void {
    const { $typeName: _, ...fields } = value as { $typeName?: string };
    this.packets.push({ case: name, value: fields } as ControlPacket);
  }

  push(...chunks: Buffer[]): this {
    for (const chunk of chunks) this.reader.push(chunk);
    return this;
  }
}

const id = fc.bigInt({ min: 1n, max: 2n ** 63n - 1n });
const smallId = fc.bigInt({ min: 1n, max: 2n ** 49n - 1n });
const text = fc.string({ maxLength: 40 });
const bytes = fc.uint8Array({ maxLength: 300 }).map((each) => Buffer.from(each));

const control: fc.Arbitrary<ControlPacket> = fc.oneof(
  fc.record({
    case: fc.constant("dialRequest" as const),
    value: fc.record({ protocol: text, address: text, random: id }),
  }),
  fc.record({
    case: fc.constant("dialResponse" as const),
    value: fc.record({ error: text, connectID: id, random: id }),
  }),
  fc.record({ case: fc.constant("closeRequest" as const), value: fc.record({ connectID: id }) }),
  fc.record({ case: fc.constant("closeResponse" as const), value: fc.record({ error: text, connectID: id }) }),
  fc.record({ case: fc.constant("closeDial" as const), value: fc.record({ random: id }) }),
  fc.record({ case: fc.constant("drain" as const), value: fc.constant({}) }),
);

test("packets are read as they were written, in whatever chunks they come", () => {
  const dataPacket = fc.record({ case: fc.constant("data" as const), connectID: fc.oneof(smallId, id), bytes });
  const packets = fc.array(fc.oneof(control, dataPacket), { maxLength: 8 });
  fc.assert(
    fc.property(packets, fc.infiniteStream(fc.integer({ min: 1, max: 90 })), (sent, sizes) => {
      const expected = new Received();
      const frames: Buffer[] = [];
      for (const packet of sent) {
        if (packet.case === "data") {
          expected.onData(packet.connectID, packet.bytes);
          frames.push(data(packet.connectID, packet.bytes));
        } else {
          expected.onPacket(packet);
          frames.push(encodePacket(packet));
        }
      }
      const received = new Received();
      const stream = Buffer.concat(frames);
      for (let at = 0; at < stream.length; ) {
        const size = sizes.next().value;
        received.push(stream.subarray(at, at + size));
        at += size;
      }
      assert.deepEqual(received.packets, expected.packets);
      assert.equal(received.reader.isInMessage, false);
    }),
  );
});

test("DATA is written as the library writes it, and its payload is not copied", () => {
  const length = fc.oneof(fc.integer({ min: 1, max: 300 }), fc.constantFrom(16_383, 16_384, 65_536, 2_097_152));
  const anyId = fc.oneof(smallId, id, fc.constant(-1n));
  fc.assert(
    fc.property(anyId, length, (connectID, size) => {
      const payload = Buffer.alloc(size, 7);
      const pieces = encodeData(connectID, payload);
      assert.ok(Buffer.concat(pieces).equals(data(connectID, payload)));
      if (connectID > 0n && connectID < 2n ** 49n) assert.equal(pieces.at(-1), payload);
    }),
    { numRuns: 200 },
  );
});

test("DATA with nothing in it, or of a connection that has no number, is read as the library reads it", () => {
  const pieces = [encodeData(5n, Buffer.alloc(0)), encodeData(0n, Buffer.from("a"))];
  assert.deepEqual(new Received().push(...pieces.flat()).packets, [
    { case: "data", connectID: 5n, bytes: "" },
    { case: "data", connectID: 0n, bytes: "61" },
  ]);
});

test("DATA is passed on before its end has come, and without a copy", () => {
  const chunk = data(1n, Buffer.alloc(1000, 1)).subarray(0, 500);
  const parts: Buffer[] = [];
  const onPacket = () => assert.fail("no packet came");
  const reader = new PacketReader({ onData: (_, part) => parts.push(part), onPacket });
  reader.push(chunk);
  assert.equal(parts[0]?.buffer, chunk.buffer);
  assert.equal(reader.isInMessage, true);
});

test("DATA whose fields come in another order is read, too", () => {
  const fields = Buffer.concat([Buffer.from([0x1a, 3]), Buffer.from("abc"), Buffer.from([0x08, 9])]);
  const packet = Buffer.concat([Buffer.from([0x22, fields.length]), fields, Buffer.from([0x08, 4])]);
  const { packets } = new Received().push(message(packet));
  assert.deepEqual(packets, [{ case: "data", connectID: 9n, bytes: Buffer.from("abc").toString("hex") }]);
});

test("the type of a packet counts, and not its payload", () => {
  const packet = byLibrary(PacketType.CLOSE_RSP, { case: "closeDial", value: { random: 7n } as never });
  assert.deepEqual(new Received().push(packet, message(Buffer.alloc(0))).packets, [
    { case: "closeResponse", value: { error: "", connectID: 0n } },
    { case: "dialRequest", value: { protocol: "", address: "", random: 0n } },
  ]);
});

test("a type that only a newer Konnectivity knows is skipped", () => {
  const drain = { case: "drain", value: {} } as const;
  assert.deepEqual(new Received().push(message(Buffer.from([0x08, 99])), encodePacket(drain)).packets, [drain]);
});

for (const [what, stream] of [
  ["a compressed message", Buffer.from([1, 0, 0, 0, 0])],
  ["a length that no packet has", Buffer.from([0, 0xff, 0xff, 0xff, 0xff])],
  ["a long packet that is no DATA", Buffer.concat([Buffer.from([0, 0, 1, 0, 1]), Buffer.alloc(32, 0x12)])],
  ["bytes that are no packet", message(Buffer.from([0x0a, 0xff]))],
  ["DATA that ends in the middle of a number", message(Buffer.from([0x08, 4, 0x22, 9, 0x08, ...Array(8).fill(0xff)]))],
] as const) {
  test(`${what} is malformed`, () => {
    assert.throws(() => new Received().push(stream), MalformedPackets);
    const pieces = Array.from(stream, (byte) => Buffer.from([byte]));
    assert.throws(() => new Received().push(...pieces), MalformedPackets);
  });
}

test("a number that runs into the next message does not make a message DATA", () => {
  // Its payload would begin one byte after its end, after a number that is too long.
  const inner = Buffer.from([0x08, 4, 0x22, 3, 0x08, 1, 0x1a]);
  const stream = Buffer.concat([message(inner), Buffer.alloc(40, 0xff)]);
  assert.throws(() => new Received().push(stream), MalformedPackets);
});
