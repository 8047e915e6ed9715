import { STATUS_CODES } from "node:http";
import type { Duplex } from "node:stream";

const LF = 10;
const CR = 13;

/**
 * Finds the empty line at the end of an HTTP/1 header section (RFC 9112 §2.1) in pieces of any size. A bare LF ends a
 * line, as it does for lenient parsers, so the end is never behind the one that a parser finds. Each byte is read once.
 */
export class HeaderEnd {
  #hasEnded = false;
  /** The last byte was a line break, or a CR after one. */
  #afterLineBreak = false;
  /** Only line breaks were read. Empty lines before a request are ignored (RFC 9112 §2.2). */
  #isEmpty = true;

  get hasEnded(): boolean {
    return this.#hasEnded;
  }

  /** Returns the number of bytes of this piece that belong to the header. */
  push(piece: Buffer): number {
    for (let at = 0; at < piece.length; at++) {
      const byte = piece[at];
      if (byte === LF) {
        if (this.#afterLineBreak && !this.#isEmpty) {
          this.#hasEnded = true;
          return at + 1;
        }
        this.#afterLineBreak = true;
      } else if (byte !== CR) {
        this.#afterLineBreak = false;
        this.#isEmpty = false;
        const end = piece.indexOf(LF, at);
        if (end === -1) return piece.length;
        at = end - 1;
      }
    }
    return piece.length;
  }
}

/** How long a connection stays open so that its peer can read the answer, ms. */
const LINGER_MS = 1_000;
/** With more unread bytes than this the peer sends a flood, and the connection lingers for a shorter time. */
const FLOOD_BYTES = 16 * 1024;
const FLOOD_LINGER_MS = 250;
/** Number of bytes that the peer may still send while the connection lingers. */
const MAX_DISCARDED = 64 * 1024;
/** Value of `MAX_DISCARDED` after a header that is too large, because its rest is already on the way. */
export const REST_OF_LARGE_HEADER = 2 * 1024 * 1024;

/**
 * Writes the last answer on a connection, ends it, and destroys it after a moment. Closing a socket with unread input
 * makes the kernel send RST, which may overtake the answer (RFC 9112 §9.6), so some input is read and discarded.
 */
export function answerAndEnd(connection: Duplex, answer: string | Buffer, maxDiscarded = MAX_DISCARDED): void {
  if (connection.destroyed) return;
  if (!connection.writableEnded) connection.end(answer, "latin1");
  const isFlood = maxDiscarded === MAX_DISCARDED && connection.readableLength > FLOOD_BYTES;
  const timer = setTimeout(() => connection.destroy(), isFlood ? FLOOD_LINGER_MS : LINGER_MS).unref();
  connection.on("close", () => clearTimeout(timer));
  if (isFlood) return; // discarding it would be the most expensive part of handling a flood
  let discarded = 0;
  connection.on("data", (chunk: Buffer) => {
    discarded += chunk.length;
    // Closing now would send the RST; a paused socket makes TCP stop the peer.
    if (discarded > maxDiscarded) connection.pause();
  });
  connection.resume();
}

/**
 * A refusal in HTTP that is the last thing on its connection: its sentence is the body, so that curl and logs show it.
 * Its date tells a client whether its own clock is wrong. `sentence`: ASCII.
 */
export function refusalText(status: number, headers: Readonly<Record<string, string>>, sentence: string): string {
  const lines = Object.entries(headers).map(([name, value]) => `${name}: ${value}\r\n`);
  return (
    `HTTP/1.1 ${status} ${STATUS_CODES[status]}\r\nDate: ${new Date().toUTCString()}\r\n${lines.join("")}` +
    `Connection: close\r\nContent-Type: text/plain\r\nContent-Length: ${sentence.length + 1}\r\n\r\n${sentence}\n`
  );
}

/**
 * The peer's part in a connection that failed with this error, as a verb phrase: it closed or reset the connection.
 * Another error gives `undefined`.
 */
export function peerAction({ code, syscall }: NodeJS.ErrnoException): string | undefined {
  // Without a system call the error is Node's own for an orderly end ("socket hang up").
  if (code === "EPIPE" || (code === "ECONNRESET" && syscall === undefined)) return "closed the connection";
  return code === "ECONNRESET" ? "reset the connection" : undefined;
}

/**
 * Notices when the peer closes the connection while its request is checked, which only a reader does. No more is read
 * than the buffer of the socket takes.
 */
export function watchForEnd(socket: Duplex): void {
  socket.on("readable", ignore).once("end", destroyThis);
}

export function unwatchForEnd(socket: Duplex): void {
  socket.off("readable", ignore).off("end", destroyThis);
}

function ignore(): void {}

function destroyThis(this: Duplex): void {
  this.destroy();
}
