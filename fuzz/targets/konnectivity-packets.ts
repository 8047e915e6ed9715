import assert from "node:assert/strict";
import { encodeData } from "../../shared/konnectivity/data.ts";
import { type ControlPacket, encodePacket } from "../../shared/konnectivity/packet.ts";
import { MalformedPackets, PacketReader } from "../../shared/konnectivity/packet-reader.ts";
import { attempt, splits, type Target } from "../target.ts";

/** The decoded packets: the payload of DATA that follows DATA of its connection is joined. */
interface Decoded {
  readonly packets: readonly (ControlPacket | { readonly case: "data"; readonly connectID: bigint; bytes: Buffer })[];
  readonly isInMessage: boolean;
  readonly problem: string | undefined;
}

const DIAL = encodePacket({ case: "dialRequest", value: { protocol: "tcp", address: "10.0.0.1:443", random: 7n } });
const DIALLED = encodePacket({ case: "dialResponse", value: { error: "no", connectID: 1n, random: -7n } });
const CLOSE = encodePacket({ case: "closeRequest", value: { connectID: 1n } });
const CLOSED = encodePacket({ case: "closeResponse", value: { error: "", connectID: 2n ** 62n } });
const CANCEL = encodePacket({ case: "closeDial", value: { random: 7n } });
const DRAIN = encodePacket({ case: "drain", value: {} });
const DATA = Buffer.concat(encodeData(1n, Buffer.from("hello")));
const DATA_OF_OTHER = Buffer.concat(encodeData(2n ** 60n, Buffer.from("bytes")));

/** The packets of a gRPC stream, in any splits. */
export const konnectivityPackets: Target = {
  name: "konnectivity-packets",
  maxLength: 2_048,
  seeds: [
    Buffer.concat([DIAL, DATA, CLOSE]),
    Buffer.concat([DIALLED, DATA, DATA_OF_OTHER, CLOSED]),
    Buffer.concat([DIAL, CANCEL, DRAIN]),
    Buffer.concat(encodeData(3n, Buffer.alloc(1_000, 1))).subarray(0, 100),
  ],
  words: [DIAL, DIALLED, CLOSE, CANCEL, DRAIN, DATA, DATA_OF_OTHER, Buffer.from([0, 0, 0, 0])],
  run(input) {
    const [together, apart] = splits(input);
    const whole = decode(together);
    assert.deepEqual(decode(apart), whole);
    const { packets, isInMessage, problem } = whole;
    const written = packets.flatMap((packet) =>
      packet.case === "data" ? encodeData(packet.connectID, packet.bytes) : [encodePacket(packet)],
    );
    assert.deepEqual(decode([Buffer.concat(written)]).packets, packets, "what is read is what can be written");
    return `${[...new Set(packets.map((packet) => packet.case))].sort()} ${isInMessage} ${problem?.replace(/\d+/, "n")}`;
  },
};

function decode(pieces: readonly Buffer[]): Decoded {
  const packets: (ControlPacket | { readonly case: "data"; readonly connectID: bigint; readonly parts: Buffer[] })[] =
    [];
  const reader = new PacketReader({
    onData(connectID, part) {
      const last = packets.at(-1);
      if (last?.case === "data" && last.connectID === connectID) last.parts.push(Buffer.from(part));
      else packets.push({ case: "data", connectID, parts: [Buffer.from(part)] });
    },
    onPacket: ({ case: name, value }) => {
      const { $typeName: _, $unknown: __, ...fields } = value as { $typeName?: string; $unknown?: unknown };
      packets.push({ case: name, value: fields } as ControlPacket);
    },
  });
  const { error } = attempt(() => {
    for (const piece of pieces) reader.push(piece);
  }, MalformedPackets);
  const joined = packets.map((packet) =>
    packet.case === "data"
      ? { case: packet.case, connectID: packet.connectID, bytes: Buffer.concat(packet.parts) }
      : packet,
  );
  return { packets: joined, isInMessage: error === undefined && reader.isInMessage, problem: error?.message };
}
