import { STATUS_CODES } from "node:http";
import type { Duplex } from "node:stream";
import { type Answer, headersOf } from "./refusal.ts";

/** How long somebody who was refused may take to read why, ms. */
const LINGER_MS = 1_000;

/** The same no where Node has let go of the connection and there is no response to write to. */
export function answerRaw(socket: Duplex, answer: Answer): void {
  if (socket.destroyed) return;
  const { status, sentence } = answer;
  const lines = Object.entries(headersOf(answer)).map(([name, value]) => `${name}: ${value}\r\n`);
  socket.end(
    `HTTP/1.1 ${status} ${STATUS_CODES[status]}\r\n${lines.join("")}Content-Type: text/plain\r\n` +
      `Content-Length: ${sentence.length + 1}\r\n\r\n${sentence}\n`,
    "latin1",
  );
  socket.resume(); // or what it still sends would overtake our answer with a reset
  setTimeout(() => socket.destroy(), LINGER_MS).unref();
}
