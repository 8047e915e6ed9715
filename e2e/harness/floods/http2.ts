import { connect as connectTls } from "node:tls";
import {
  connectRequest,
  data,
  FLAG,
  FRAME,
  FrameReader,
  frame,
  INDEXED,
  indexedField,
  PREFACE,
  reset,
  settings,
  windowUpdate,
} from "../../../shared/node/testing/http2-frames.ts";
import { flooding } from "./flooding.ts";

interface Args {
  readonly port: number;
  readonly tls: { readonly ca: string; readonly cert: string; readonly key: string; readonly servername: string };
  readonly kind: keyof typeof KINDS;
  /** Sends without end. */
  readonly source: string;
  /** Reads all and says nothing. */
  readonly sink: string;
}

/** Bytes that are sent once, and bytes that are sent without end. Stream 1 is the first CONNECT. */
interface Kind {
  readonly first?: (args: Args) => readonly Buffer[];
  /** `stream`: of a CONNECT that has not been sent. */
  readonly next: (stream: number, args: Args) => Buffer<ArrayBufferLike>;
  /** The caller reads nothing. */
  readonly unread?: true;
}

const WRITE_BYTES = 64 * 1024;
/** A caller that is cut comes again. */
const AGAIN_MS = 20;
const MOST_WINDOW = 2 ** 31 - 1;
const PING = frame({ type: FRAME.ping, payload: Buffer.alloc(8) });
const NOBODY = "10.0.0.1:0";
const ofSink = ({ sink }: Args) => [connectRequest(1, sink)];

const KINDS = {
  "rapid resets": { next: (stream, { sink }) => Buffer.concat([connectRequest(stream, sink), reset(stream)]) },
  "rapid resets of refused CONNECTs": {
    next: (stream) => Buffer.concat([connectRequest(stream, NOBODY), reset(stream)]),
  },
  "refused CONNECTs": { next: (stream) => connectRequest(stream, NOBODY) },
  "malformed CONNECTs": { next: (stream) => connectRequest(stream, "x", Buffer.from("\x00\x01A\x01b")) },
  "CONTINUATION without end": {
    first: () => [frame({ type: FRAME.headers, stream: 1 })],
    next: () => frame({ type: FRAME.continuation, stream: 1, payload: Buffer.from("\x00\x01a\x01b") }),
  },
  "empty CONTINUATION": {
    first: () => [frame({ type: FRAME.headers, stream: 1 })],
    next: () => frame({ type: FRAME.continuation, stream: 1 }),
  },
  SETTINGS: { next: () => settings({ headerTableSize: 4_096 }) },
  "acknowledgements of SETTINGS": { next: () => frame({ type: FRAME.settings, flags: FLAG.ack }) },
  PING: { next: () => PING },
  "answers to no PING": { next: () => frame({ type: FRAME.ping, flags: FLAG.ack, payload: Buffer.alloc(8) }) },
  "empty DATA": { first: ofSink, next: () => data(1, Buffer.alloc(0)) },
  "DATA of one byte": { first: ofSink, next: () => data(1, Buffer.of(1)) },
  "DATA for a stream that has ended": {
    first: (args) => [...ofSink(args), reset(1)],
    next: () => data(1, Buffer.of(1)),
  },
  "windows of one byte": {
    first: ({ source }) => [settings({ initialWindowSize: 1 }), connectRequest(1, source)],
    next: () => windowUpdate(1, 1),
  },
  "WINDOW_UPDATE of the connection": { next: () => windowUpdate(0, 1) },
  PRIORITY: {
    next: (stream) => frame({ type: FRAME.priority, stream, payload: Buffer.from([0, 0, 0, 0, 16]) }),
  },
  "RST_STREAM of streams that have ended": {
    first: (args) => [...ofSink(args), reset(1)],
    next: () => reset(1),
  },
  "RST_STREAM of streams that never were": { next: (stream) => reset(stream) },
  "unknown frames": { next: () => frame({ type: 0xaa, payload: Buffer.alloc(16) }) },
  "headers that are references to a large one": {
    first: () => [connectRequest(1, NOBODY, indexedField("x", 3_900))],
    next: (stream) => connectRequest(stream, NOBODY, Buffer.alloc(16_000, INDEXED[0])),
  },
  "headers over the limit": {
    next: (stream) => connectRequest(stream, NOBODY, Buffer.alloc(16_000, "\x00\x01a\x01b")),
  },
  "CONNECTs, and reads nothing": {
    first: () => [settings({ initialWindowSize: MOST_WINDOW }), windowUpdate(0, MOST_WINDOW - 65_535)],
    next: (stream, { source }) => connectRequest(stream, source),
    unread: true,
  },
  "refused CONNECTs, and reads nothing": { next: (stream) => connectRequest(stream, NOBODY), unread: true },
  "PING, and reads nothing": { next: () => PING, unread: true },
  "SETTINGS, and reads nothing": { next: () => settings(), unread: true },
} as const satisfies Readonly<Record<string, Kind>>;

/** A caller with a good certificate that floods its HTTP/2 session, and comes again when it is cut. */
await flooding<Args, { opened: number; cut: number; mebibytes: number; frames: number; last: string }>(
  { opened: 0, cut: 0, mebibytes: 0, frames: 0, last: "" },
  (args, counts) => {
    const { port, tls, kind } = args;
    const { first, next, unread }: Kind = KINDS[kind];
    const open = (): void => {
      counts.opened++;
      const socket = connectTls({ port, host: "127.0.0.1", ALPNProtocols: ["h2"], ...tls });
      let stream = 3;
      const write = (): void => {
        if (socket.destroyed) return;
        const parts: Buffer[] = [];
        for (let bytes = 0; bytes < WRITE_BYTES; bytes += parts.at(-1)?.length ?? 0) {
          parts.push(next(stream, args));
          stream += 2;
        }
        counts.mebibytes += WRITE_BYTES / 2 ** 20;
        counts.frames += parts.length;
        socket.write(Buffer.concat(parts), (error) => {
          if (!error) setImmediate(write);
        });
      };
      socket.on("error", () => {});
      socket.once("secureConnect", () => {
        socket.write(Buffer.concat([PREFACE, settings(), ...(first?.(args) ?? [])]));
        write();
      });
      const reader = new FrameReader();
      if (unread !== true) {
        socket.on("data", (chunk) => {
          for (const { type, payload } of reader.push(chunk)) {
            if (type === FRAME.goaway) counts.last = `${payload.readUInt32BE(4)} ${payload.subarray(8)}`;
          }
        });
      }
      socket.once("close", () => {
        counts.cut++;
        setTimeout(open, AGAIN_MS);
      });
    };
    open();
  },
);
