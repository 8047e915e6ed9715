import assert from "node:assert/strict";
import { Flag, FrameType, HEADER_LENGTH } from "../../shared/yamux/frame.ts";
import type { WireFrame } from "../../shared/yamux/testing/sessions.ts";

/** One stream, as the peer counts. */
interface Counted {
  /** Bytes that the session may still send. */
  credit: number;
  /** The session has said FIN or RST. */
  hasEnded: boolean;
  readonly payload: Buffer[];
}

/** The wire as a peer sees it who reads the specification literally: it knows nothing of the session's code. */
export class PeerView {
  readonly #window: number;
  readonly #streams = new Map<number, Counted>();
  #sent: Buffer = Buffer.alloc(0);
  #kinds = 0;

  constructor(window: number) {
    this.#window = window;
  }

  /** Which kinds of frames have come, one bit each. */
  get seen(): number {
    return this.#kinds;
  }

  /** All payload for a stream, the beginning of a frame that is under way included. */
  payloadTo(id: number): Buffer {
    const [, type] = this.#sent;
    const isPartly = this.#sent.length > HEADER_LENGTH && type === FrameType.data && this.#sent.readUInt32BE(4) === id;
    return Buffer.concat([...this.#of(id).payload, ...(isPartly ? [this.#sent.subarray(HEADER_LENGTH)] : [])]);
  }

  #of(id: number): Counted {
    const known = this.#streams.get(id) ?? { credit: this.#window, hasEnded: false, payload: [] };
    this.#streams.set(id, known);
    return known;
  }

  /** Sends bytes to the session. */
  send(bytes: Buffer): void {
    this.#sent = Buffer.concat([this.#sent, bytes]);
    while (this.#sent.length >= HEADER_LENGTH) {
      const [, type] = this.#sent;
      const stream = this.#of(this.#sent.readUInt32BE(4));
      const length = this.#sent.readUInt32BE(8);
      const end = HEADER_LENGTH + (type === FrameType.data ? length : 0);
      if (type === FrameType.windowUpdate) stream.credit += length;
      if (this.#sent.length < end) return;
      if (type === FrameType.data) stream.payload.push(this.#sent.subarray(HEADER_LENGTH, end));
      this.#sent = this.#sent.subarray(end);
    }
  }

  /** Receives a frame of the session. */
  onFrame({ type, flags, id, length }: WireFrame): void {
    assert.ok(type <= FrameType.goAway && flags < 16, "a frame of the specification");
    this.#kinds |= 1 << (type * 4 + Math.min(3, flags));
    if (type > FrameType.windowUpdate) return;
    const stream = this.#of(id);
    if (type === FrameType.data) {
      assert.ok(!stream.hasEnded || length === 0, `no data after the end of stream ${id}`);
      assert.ok(length <= stream.credit, `${length} bytes are sent on stream ${id} where ${stream.credit} may be`);
      stream.credit -= length;
    }
    if ((flags & (Flag.fin | Flag.rst)) !== 0) stream.hasEnded = true;
  }
}
