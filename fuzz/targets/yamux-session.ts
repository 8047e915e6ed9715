import assert from "node:assert/strict";
import type { SessionOptions } from "../../shared/yamux/bounds.ts";
import { YamuxError } from "../../shared/yamux/errors.ts";
import { FrameType, header } from "../../shared/yamux/frame.ts";
import { Session } from "../../shared/yamux/session.ts";
import type { Stream } from "../../shared/yamux/stream.ts";
import { FakeTransport, turn } from "../../shared/yamux/testing/sessions.ts";
import type { Target } from "../target.ts";
import { PeerView } from "./peer-view.ts";

const WINDOW = 1_024;
/** Small bounds are met by small inputs. */
const OPTIONS = {
  initialWindow: WINDOW,
  maxWindow: 4 * WINDOW,
  budget: 6 * WINDOW,
  maxStreams: 6,
  maxFramePayload: 512,
  maxPending: 2_048,
  maxIdleFramesPerSecond: 40,
} as const satisfies Partial<SessionOptions>;
const MAX_TURNS = 12;

/**
 * A whole session, whose peer and whose owner do what the input says. The first byte chooses the role; then each
 * operation is one byte, with its arguments behind it.
 */
export const yamuxSession: Target = {
  name: "yamux-session",
  maxLength: 400,
  // An operation of a few bytes may stand for a frame of 4 KiB.
  bounds: { allocation: { fixed: 256 * 1024, perByte: 16 * 1024 }, steps: { fixed: 40_000, perByte: 1_000 } },
  seeds: ["00", "01"].flatMap((role) =>
    [
      // The peer opens stream 1 or 2, sends, and is read, answered and ended.
      "00 05 01 0000 00 00 01 0040 0c 00 09 00 0d 08 00 20 0a 00 0d 00 10 01 0000 09 00 0d",
      "00 05 02 0000 00 00 02 0400 0d 09 00 0d 00 00 02 0200 00 20 02 0000 0d",
      // We open, the peer acknowledges, gives credit and resets.
      "07 10 0d 00 09 01 0100 08 00 ff 0d 00 01 01 0400 0d 00 21 01 0000 0d",
      "07 00 08 00 ff 08 00 ff 0a 00 0d 00 09 02 2000 0d 0b 00 0d",
      // Pings, drain and go-away, and a transport that takes nothing.
      "00 06 00 0007 0e 00 0f 00 0d 00 03 00 0000 0e 01 0d",
      "06 0c 000000000000000100000003 0d",
    ].map((script) => Buffer.from(`${role}${script}`.replaceAll(" ", ""), "hex")),
  ),
  words: [
    Buffer.from("0005010000", "hex"),
    Buffer.from("0005020000", "hex"),
    Buffer.from("0000010100", "hex"),
    Buffer.from("0900", "hex"),
    Buffer.from("0d", "hex"),
  ],
  async run(input) {
    const world = new World((input[0] ?? 0) % 2 === 0 ? "client" : "server");
    const script = new Script(input.subarray(1));
    while (!script.isOver && world.isOpen) await world.run(script);
    return world.end();
  },
};

/** The operations, byte by byte; behind the end all is 0. */
class Script {
  readonly #bytes: Buffer;
  #at = 0;

  constructor(bytes: Buffer) {
    this.#bytes = bytes;
  }

  get isOver(): boolean {
    return this.#at >= this.#bytes.length;
  }

  byte(): number {
    return this.#bytes[this.#at++] ?? 0;
  }

  short(): number {
    return 256 * this.byte() + this.byte();
  }

  bytes(length: number): Buffer {
    const taken = this.#bytes.subarray(this.#at, this.#at + length);
    this.#at += length;
    return taken;
  }
}

/** The peer's view of the wire. */
class WatchedTransport extends FakeTransport {
  readonly view = new PeerView(WINDOW);

  override write(batch: readonly Buffer[], byteLength: number): void {
    super.write(batch, byteLength);
    for (const frame of this.frames()) this.view.onFrame(frame);
  }

  override receive(...bytes: Buffer[]): void {
    this.view.send(Buffer.concat(bytes));
    super.receive(...bytes);
  }
}

class World {
  readonly #transport = new WatchedTransport();
  readonly #session: Session;
  readonly #streams: Stream[] = [];
  readonly #read = new Map<number, Buffer[]>();
  /** A clock that moves with each operation. */
  #now = 0;
  #turns = 0;
  #closed: { readonly reason: Error | undefined } | undefined;

  constructor(role: "client" | "server") {
    const handler = {
      onStream: (stream: Stream) => this.#add(stream),
      onClosed: (reason: Error | undefined) => {
        assert.equal(this.#closed, undefined, "a session ends once");
        this.#closed = { reason };
      },
    };
    this.#session = new Session(role, this.#transport, handler, { ...OPTIONS, now: () => this.#now });
  }

  get isOpen(): boolean {
    return this.#closed === undefined && this.#turns < MAX_TURNS;
  }

  async run(script: Script): Promise<void> {
    this.#now += 1;
    const operation = script.byte() % 16;
    if (operation < 6) this.#receiveFrame(script);
    else if (operation === 6) this.#transport.receive(script.bytes(script.byte()));
    else if (operation === 7) this.#open(script.byte());
    else if (operation === 13) await this.#turn();
    else if (operation === 14) this.#ofSession(script.byte());
    else if (operation === 15) this.#ofTransport(script.byte());
    else this.#ofStream(operation, script);
    this.#check();
  }

  /** Type and flags, a stream, and a length; the payload is as long as it should be. */
  #receiveFrame(script: Script): void {
    const kind = script.byte();
    const id = script.byte();
    const length = script.short();
    const type = (kind & 3) as FrameType;
    const payload = Buffer.alloc(type === FrameType.data && length <= 2 * OPTIONS.maxWindow ? length : 0, this.#now);
    this.#transport.receive(header(type, (kind >> 2) & 15, id, length), payload);
  }

  #open(length: number): void {
    try {
      this.#add(this.#session.open(length === 0 ? undefined : Buffer.alloc(length, 1)));
    } catch (error) {
      if (!(error instanceof YamuxError) || error.reason === "protocol") throw error;
    }
  }

  #add(stream: Stream): void {
    stream.on("error", () => {});
    this.#streams.push(stream);
  }

  async #turn(): Promise<void> {
    this.#turns++;
    await turn();
  }

  #ofSession(which: number): void {
    if (which % 2 === 0) this.#session.ping().catch(() => {});
    else this.#session.drain();
  }

  #ofTransport(which: number): void {
    this.#transport.takesAtOnce = which % 2 === 1;
    if (this.#transport.takesAtOnce) this.#transport.take();
  }

  #ofStream(operation: number, script: Script): void {
    const stream = this.#streams[script.byte() % Math.max(1, this.#streams.length)];
    if (stream === undefined || stream.destroyed) return;
    if (operation === 8) {
      const bytes = Buffer.alloc(1 + 4 * script.byte(), 2);
      if (!stream.writableEnded) stream.write(bytes);
    } else if (operation === 9) this.#readFrom(stream);
    else if (operation === 10) stream.end();
    else if (operation === 11) stream.destroy();
    else stream.accept();
  }

  #readFrom(stream: Stream): void {
    const chunk = stream.read();
    if (chunk !== null) this.#read.set(stream.id, [...(this.#read.get(stream.id) ?? []), chunk as Buffer]);
  }

  #check(): void {
    assert.ok(this.#session.bufferedBytes <= 2 * OPTIONS.budget, "no more is held than the budget allows");
    assert.ok(this.#session.streamCount <= OPTIONS.maxStreams, "no more streams are open than may be");
    for (const { id, held } of this.#streams) assert.ok(held <= OPTIONS.maxWindow, `stream ${id} obeys its window`);
  }

  /** The peer leaves; nothing is left behind. */
  async end(): Promise<string> {
    await turn();
    this.#transport.close();
    const { reason } = this.#closed ?? assert.fail("a session whose transport has gone has ended");
    assert.ok(reason === undefined || reason instanceof YamuxError, `${reason}`);
    for (const [id, chunks] of this.#read) {
      const read = Buffer.concat(chunks);
      assert.ok(
        read.equals(this.#transport.view.payloadTo(id).subarray(0, read.length)),
        "what is read is what was sent",
      );
    }
    for (const stream of this.#streams) stream.destroy();
    await turn();
    assert.equal(this.#session.streamCount, 0);
    assert.equal(this.#session.bufferedBytes, 0);
    const sentence = reason?.message.replace(/\d+/g, "n");
    return `${this.#streams.length} ${this.#read.size} ${this.#session.resetForMemory > 0} ${this.#transport.view.seen} ${sentence}`;
  }
}
