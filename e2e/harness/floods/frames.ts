import { randomUUID } from "node:crypto";
import { connect as connectTls } from "node:tls";
import { WebSocket } from "ws";
import { LINK_ENDED } from "../../../shared/link/link-events.ts";
import { type FrameShape, frame } from "../../../shared/link/testing/frames.ts";
import { CloseCode, HANDSHAKE_VERSION, SUBPROTOCOL, TUNNEL_PATH } from "../../../shared/wire/handshake.ts";
import { frame as yamux } from "../../../shared/yamux/testing/sessions.ts";
import { flooding } from "./flooding.ts";

interface Args {
  readonly port: number;
  readonly servername: string;
  readonly ca: string;
  readonly cert: string;
  readonly key: string;
  readonly agentId: string;
  readonly kind: keyof typeof KINDS;
}

/** Bytes that are sent once, and bytes that are sent without end. */
interface Kind {
  readonly first?: Buffer;
  /** Absent: it ends the tunnel at once, and comes again. */
  readonly flood?: Buffer;
}

/** One write, bytes. */
const WRITE_BYTES = 128 * 1024;
/** Of one WebSocket message. */
const MESSAGE_BYTES = 48 * 1024;
/** An agent that is cut, or refused, comes again at once. */
const AGAIN_MS = 20;
/** Processes of one agent that do nothing but come and go. */
const PARALLEL = 8;

const masked = (shape: FrameShape): Buffer => frame({ ...shape, mask: Buffer.alloc(4) });

function many(bytes: Buffer, length: number): Buffer {
  return Buffer.concat(Array.from({ length: Math.ceil(length / bytes.length) }, () => bytes));
}

const message = (payload: Buffer): Buffer => masked({ opcode: 2, payload });
/** A stream that the agent opens and resets; one that it leaves open. */
const ENDED = message(Buffer.concat([yamux.syn(1), yamux.rst(1)]));
const OPEN = message(yamux.syn(1));
const STREAMS = Array.from({ length: 4_096 }, (_, count) => yamux.syn(2 * count + 1));

const KINDS = {
  nothing: {},
  "empty messages": { flood: masked({ opcode: 2 }) },
  "empty fragments": { first: masked({ opcode: 2, final: false }), flood: masked({ opcode: 0, final: false }) },
  "single bytes": {
    // Frames of yamux, of which each byte comes in a frame of WebSocket; streams that have ended leave room for some.
    first: message(Buffer.concat(STREAMS.slice(0, 16))),
    flood: Buffer.concat([...yamux.data(1, Buffer.alloc(10_000))].map((byte) => message(Buffer.of(byte)))),
  },
  pings: { flood: masked({ opcode: 9 }) },
  pongs: { flood: masked({ opcode: 10 }) },
  "window updates for closed streams": {
    first: ENDED,
    flood: message(many(yamux.windowUpdate(1, 65_536), MESSAGE_BYTES)),
  },
  "window updates of one byte": { first: OPEN, flood: message(many(yamux.windowUpdate(1, 1), MESSAGE_BYTES)) },
  "data for closed streams": { first: ENDED, flood: message(yamux.data(1, Buffer.alloc(MESSAGE_BYTES))) },
  "new streams": { flood: message(Buffer.concat(STREAMS)) },
} as const satisfies Readonly<Record<string, Kind>>;

/**
 * An agent with a good credential that sends a flood of one kind of frame through its tunnel, and comes again when it
 * is cut.
 */
await flooding<Args, { welcomed: number; refused: number; mebibytes: number; last: string }>(
  { welcomed: 0, refused: 0, mebibytes: 0, last: "" },
  ({ port, servername, ca, cert, key, agentId, kind }, counts) => {
    const { first, flood }: Kind = KINDS[kind];
    const writes = many(flood ?? Buffer.alloc(1), WRITE_BYTES);
    const words = { type: "hello", version: HANDSHAKE_VERSION, agentId, software: "flood" };
    const open = (): void => {
      const socket = connectTls({ port, host: "127.0.0.1", servername, ca, cert, key }).on("error", () => {});
      const ws = new WebSocket(`wss://${servername}:${port}${TUNNEL_PATH}`, [SUBPROTOCOL], {
        createConnection: () => socket,
        perMessageDeflate: false,
      });
      const more = (error?: Error | null): void => {
        if (error || socket.destroyed) return;
        counts.mebibytes += writes.length / 2 ** 20;
        socket.write(writes, (failure) => setImmediate(more, failure));
      };
      ws.on("error", () => {});
      ws.once("open", () => ws.send(JSON.stringify({ ...words, instance: randomUUID() })));
      ws.once("message", () => {
        counts.welcomed++;
        if (first !== undefined) socket.write(first);
        if (flood === undefined) ws.close(CloseCode.normal, LINK_ENDED);
        else more();
      });
      ws.once("close", (_code, reason) => {
        counts.last = reason.toString();
        if (counts.last.includes("come back in")) counts.refused++;
        socket.destroy();
        setTimeout(open, AGAIN_MS);
      });
    };
    for (let count = 0; count < (flood === undefined ? PARALLEL : 1); count++) open();
  },
);
