import { connect, type Socket } from "node:net";
import { connect as connectTls, createSecureContext, type SecureContext } from "node:tls";
import type { DialSpec } from "./dial-spec.ts";

const END_OF_HEADER = "\r\n\r\n";
const contexts = new Map<string, SecureContext>();

export interface Opened {
  /** The 200 is here (or, without CONNECT, the connection). */
  onOpen(socket: Socket): void;
  /** Bytes behind it. The buffer is used again after the call. */
  onBytes(socket: Socket, length: number): void;
  onFail(reason: string): void;
}

/** Dials and says CONNECT with as little work as Node allows: one write, no parser, one static read buffer. */
export function open(dial: DialSpec, opened: Opened, buffer: Buffer): Socket {
  let established = dial.connect === undefined;
  const onChunk = (length: number, chunk: Buffer): void => {
    if (established) {
      opened.onBytes(socket, length);
      return;
    }
    const answer = chunk.toString("latin1", 0, Math.min(length, 2048));
    const end = answer.indexOf(END_OF_HEADER);
    if (answer.startsWith("HTTP/1.1 200") && end > 0) {
      established = true;
      opened.onOpen(socket);
      if (length > end + 4) opened.onBytes(socket, length - end - 4);
    } else {
      fail(answer.slice(0, 100).split("\r\n")[0] ?? "no answer");
    }
  };
  let failed = false;
  const fail = (reason: string): void => {
    if (failed) return;
    failed = true;
    socket.destroy();
    opened.onFail(reason);
  };
  const socket = dial.tls ? dialTls(dial, onChunk) : dialPlain(dial, onChunk, buffer);
  socket.on("error", (error) => fail(error.message));
  socket.on("close", () => fail("closed"));
  if (dial.connect === undefined) socket.once("connect", () => opened.onOpen(socket));
  else socket.write(`CONNECT ${dial.connect} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n`);
  return socket;
}

type OnChunk = (length: number, chunk: Buffer) => void;

function dialPlain(dial: DialSpec, onChunk: OnChunk, buffer: Buffer): Socket {
  const onread = {
    buffer,
    callback: (length: number, chunk: Buffer) => {
      onChunk(length, chunk);
      return true;
    },
  };
  if (dial.path !== undefined) return connect({ path: dial.path, onread } as never);
  return connect({ host: "127.0.0.1", port: dial.port ?? 0, noDelay: true, onread } as never);
}

function dialTls(dial: DialSpec, onChunk: OnChunk): Socket {
  const { tls, port = 0 } = dial;
  const key = tls?.cert ?? "";
  const secureContext = contexts.get(key) ?? createSecureContext({ ...tls });
  contexts.set(key, secureContext);
  const socket = connectTls({ host: "127.0.0.1", port, servername: "localhost", secureContext });
  socket.setNoDelay(true);
  socket.on("data", (chunk: Buffer) => onChunk(chunk.length, chunk));
  return socket;
}
