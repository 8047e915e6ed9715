import assert from "node:assert/strict";
import { YamuxError } from "../../shared/yamux/errors.ts";
import {
  Decoder,
  Flag,
  type FrameConsumer,
  FrameType,
  HEADER_LENGTH,
  header,
  VERSION,
} from "../../shared/yamux/frame.ts";
import { frame } from "../../shared/yamux/testing/sessions.ts";
import { attempt, splits, type Target } from "../target.ts";

/** The frames that were decoded. */
interface Decoded {
  /** The frames, encoded again. */
  readonly bytes: Buffer;
  readonly frames: number;
  readonly atBoundary: boolean;
  readonly problem: string | undefined;
}

/** The frame decoder of yamux, in any splits. */
export const yamuxFrames: Target = {
  name: "yamux-frames",
  maxLength: 2_048,
  seeds: [
    Buffer.concat([frame.syn(1), frame.data(1, "hello"), frame.fin(1)]),
    Buffer.concat([frame.ping(7), frame.pong(7), frame.goAway(0)]),
    Buffer.concat([frame.data(3, "", Flag.syn), frame.windowUpdate(3, 65_536, Flag.ack), frame.rst(3)]),
    frame.dataHeader(5, 0xffff_ffff),
  ],
  words: [frame.syn(1), frame.data(1, ""), frame.dataHeader(1, 300), frame.ping(1), frame.goAway(1)],
  run(input) {
    const [together, apart] = splits(input);
    const whole = decode(together);
    assert.deepEqual(decode(apart), whole);
    const { bytes, frames, atBoundary, problem } = whole;
    assert.ok(bytes.equals(withoutUnread(input.subarray(0, bytes.length))), "the frames are the bytes that came");
    const left = input.length - bytes.length;
    if (problem === undefined) {
      assert.ok(left < HEADER_LENGTH, "no more than a part of a header is held");
      assert.equal(atBoundary, left === 0 && !endsInPayload(input));
    } else {
      assert.ok(left >= HEADER_LENGTH, "only a whole header is refused");
      const [version, type = 0] = input.subarray(bytes.length);
      assert.ok(version !== VERSION || type > FrameType.goAway, "a frame that the specification knows is taken");
    }
    for (let most = 1; most < Math.min(frames, 4); most++) assert.equal(decode([input], most).frames, most);
    return `${Math.min(frames, 8)} ${atBoundary} ${problem?.replace(/\d+/, "n")}`;
  },
};

/** Stops after `most` frames. */
function decode(pieces: readonly Buffer[], most = Number.POSITIVE_INFINITY): Decoded {
  const bytes: Buffer[] = [];
  let frames = 0;
  let chunk: Buffer = Buffer.alloc(0);
  let missing = 0;
  const count = (): void => {
    frames++;
    if (frames === most) decoder.stop();
  };
  const consumer: FrameConsumer = {
    onDataHeader: (flags, id, length) => {
      assert.equal(missing, 0, "a frame begins behind the end of another");
      missing = length;
      bytes.push(header(FrameType.data, flags, id, length));
    },
    onDataPiece: (piece) => {
      assert.ok(piece.length > 0 && piece.length <= missing, "a piece is of the payload");
      assert.equal(piece.buffer, chunk.buffer, "payload is not copied");
      missing -= piece.length;
      bytes.push(piece);
    },
    onDataEnd: () => {
      assert.equal(missing, 0, "the end comes behind the last byte");
      count();
    },
    onWindowUpdate: (flags, id, delta) => {
      bytes.push(header(FrameType.windowUpdate, flags, id, delta));
      count();
    },
    onPing: (flags, value) => {
      bytes.push(header(FrameType.ping, flags, 0, value));
      count();
    },
    onGoAway: (code) => {
      bytes.push(header(FrameType.goAway, 0, 0, code));
      count();
    },
  };
  const decoder = new Decoder(consumer);
  const { error } = attempt(() => {
    for (chunk of pieces) decoder.push(chunk);
  }, YamuxError);
  if (error !== undefined) assert.equal(error.reason, "protocol");
  return { bytes: Buffer.concat(bytes), frames, atBoundary: decoder.atBoundary, problem: error?.message };
}

/** A ping has no stream, and a go-away neither stream nor flags: what stands there is not read. */
function withoutUnread(input: Buffer): Buffer {
  const bytes = Buffer.from(input);
  for (const at of frameStarts(bytes)) {
    if (bytes[at + 1] === FrameType.ping) bytes.fill(0, at + 4, at + 8);
    if (bytes[at + 1] === FrameType.goAway) bytes.fill(0, at + 2, at + 8);
  }
  return bytes;
}

/** Read without the decoder: does the last frame claim more payload than there is? */
function endsInPayload(input: Buffer): boolean {
  const last = frameStarts(input).at(-1);
  return last !== undefined && endOfFrame(input, last) > input.length;
}

/** Of all frames whose header is there. */
function frameStarts(input: Buffer): number[] {
  const starts: number[] = [];
  for (let at = 0; at + HEADER_LENGTH <= input.length; at = endOfFrame(input, at)) starts.push(at);
  return starts;
}

function endOfFrame(input: Buffer, at: number): number {
  return at + HEADER_LENGTH + (input[at + 1] === FrameType.data ? input.readUInt32BE(at + 8) : 0);
}
