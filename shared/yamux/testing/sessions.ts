import assert from "node:assert/strict";
import { once } from "node:events";
import { duplexPair } from "node:stream";
import { wholeRecords } from "../../basics/bytes.ts";
import { deferred } from "../../basics/promises.ts";
import { until } from "../../basics/testing/wait.ts";
import type { SessionOptions } from "../bounds.ts";
import { header } from "../frame.ts";
import { Session, type SessionHandler, type SessionRole } from "../session.ts";
import type { Stream } from "../stream.ts";
import type { Transport, TransportConsumer } from "../transport.ts";
import { DuplexTransport } from "./duplex-transport.ts";

/** One end of a session as a test holds it. */
export interface End {
  readonly session: Session;
  /** Streams that the peer opened, in order; each has an `error` listener. */
  readonly accepted: Stream[];
  /** Go-away codes received. */
  readonly goAways: number[];
  readonly closed: Promise<Error | undefined>;
}

/** A session on `transport` that records its events. */
export function end(role: SessionRole, transport: Transport, options: Partial<SessionOptions> = {}): End {
  const accepted: Stream[] = [];
  const goAways: number[] = [];
  const { promise: closed, resolve: onClosed } = deferred<Error | undefined>();
  const handler: SessionHandler = {
    onStream: (stream) => {
      stream.on("error", () => {});
      accepted.push(stream);
    },
    onGoAway: (code) => goAways.push(code),
    onClosed,
  };
  return { session: new Session(role, transport, handler, options), accepted, goAways, closed };
}

/** A transport with the records of TLS below it. */
class RecordTransport extends DuplexTransport {
  override wholeRecords = wholeRecords;
}

/** Two sessions joined by a `duplexPair()`. */
export function pair(options: Partial<SessionOptions> = {}): { client: End; server: End } {
  const [left, right] = duplexPair();
  return {
    client: end("client", new RecordTransport(left), options),
    server: end("server", new RecordTransport(right), options),
  };
}

/** A stream that `from` opened, as both ends hold it. */
export async function openStream({ client, server }: { client: End; server: End }): Promise<[Stream, Stream]> {
  const count = server.accepted.length;
  const near = client.session.open();
  near.on("error", () => {});
  await until(() => server.accepted.length > count);
  return [near, server.accepted[count] as Stream];
}

/** Reads to the end without ending the other direction, as a splice would. */
export async function readAll(stream: Stream): Promise<Buffer> {
  const chunks: Buffer[] = [];
  stream.on("data", (chunk: Buffer) => chunks.push(chunk));
  await once(stream, "end");
  return Buffer.concat(chunks);
}

/** Two turns of the event loop: the second brings nothing to send, so the frames of the first have been sent. */
export async function turn(): Promise<void> {
  for (let count = 0; count < 2; count++) await new Promise((resolve) => setImmediate(resolve));
}

/** A frame as it is on the wire, parsed without the code under test. */
export interface WireFrame {
  readonly type: number;
  readonly flags: number;
  readonly id: number;
  readonly length: number;
  readonly payload: Buffer;
}

/** Parses whole frames; what is left over is a failure of the test. */
export function parseFrames(bytes: Buffer): WireFrame[] {
  const frames: WireFrame[] = [];
  for (let at = 0; at < bytes.length; ) {
    assert.equal(bytes[at], 0, `version at byte ${at}`);
    const type = bytes[at + 1] as number;
    const length = bytes.readUInt32BE(at + 8);
    const payload = bytes.subarray(at + 12, at + 12 + (type === 0 ? length : 0));
    frames.push({ type, flags: bytes.readUInt16BE(at + 2), id: bytes.readUInt32BE(at + 4), length, payload });
    at += 12 + payload.length;
    assert.ok(at <= bytes.length, "a frame is cut");
  }
  return frames;
}

/** Frames by their names in the specification, for tests that play a peer by hand. */
export const frame = {
  data: (id: number, payload: Buffer | string, flags = 0): Buffer => {
    const bytes = Buffer.from(payload);
    return Buffer.concat([header(0, flags, id, bytes.length), bytes]);
  },
  dataHeader: (id: number, length: number, flags = 0): Buffer => header(0, flags, id, length),
  windowUpdate: (id: number, delta: number, flags = 0): Buffer => header(1, flags, id, delta),
  syn: (id: number): Buffer => header(1, 1, id, 0),
  ack: (id: number): Buffer => header(1, 2, id, 0),
  fin: (id: number): Buffer => header(1, 4, id, 0),
  rst: (id: number): Buffer => header(1, 8, id, 0),
  ping: (value: number): Buffer => header(2, 1, 0, value),
  pong: (value: number): Buffer => header(2, 2, 0, value),
  goAway: (code: number): Buffer => header(3, 0, 0, code),
};

/** A transport without a peer: the test feeds bytes in and sees what was written, and when it is taken. */
export class FakeTransport implements Transport {
  readonly writes: Buffer[] = [];
  /** The number of buffers that the last write had. */
  buffersInLast = 0;
  pendingBytes = 0;
  ended = false;
  destroyedWith: { readonly reason: Error | undefined } | undefined;
  /** False: everything written stays pending until `take`. */
  takesAtOnce = true;
  /** Bytes that the path would have under way. */
  pathRoom = Number.POSITIVE_INFINITY;
  #consumer: TransportConsumer | undefined;

  start(consumer: TransportConsumer): void {
    this.#consumer = consumer;
  }

  room(): number {
    return this.pathRoom - this.pendingBytes;
  }

  wholeRecords = wholeRecords;

  write(batch: readonly Buffer[], byteLength: number): void {
    const bytes = Buffer.concat(batch);
    assert.equal(bytes.length, byteLength);
    this.writes.push(bytes);
    this.buffersInLast = batch.length;
    if (!this.takesAtOnce) this.pendingBytes += byteLength;
  }

  /** The transport below takes up to `bytes` of the pending bytes. */
  take(bytes = this.pendingBytes): void {
    this.pendingBytes -= Math.min(bytes, this.pendingBytes);
    this.#consumer?.onWritable();
  }

  end(): void {
    this.ended = true;
  }

  destroy(reason?: Error): void {
    this.destroyedWith = { reason };
  }

  /** The peer sends these bytes, in one chunk. */
  receive(...bytes: Buffer[]): void {
    this.#consumer?.onBytes(Buffer.concat(bytes));
  }

  /** The pipe is gone. */
  close(reason?: Error): void {
    this.#consumer?.onClosed(reason);
  }

  /** Frames written since the last call. */
  frames(): WireFrame[] {
    return parseFrames(Buffer.concat(this.writes.splice(0)));
  }
}

/** A session whose peer is the test itself. The ping that every session begins with has been taken off. */
export async function handHeld(
  role: SessionRole,
  options: Partial<SessionOptions> = {},
): Promise<End & { transport: FakeTransport }> {
  const transport = new FakeTransport();
  const held = end(role, transport, options);
  await turn();
  transport.frames();
  return { ...held, transport };
}
