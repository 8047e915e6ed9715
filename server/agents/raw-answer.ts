import { STATUS_CODES } from "node:http";
import type { Duplex } from "node:stream";
import { answerAndEnd, REST_OF_LARGE_HEADER } from "../../shared/http/connection-end.ts";
import { type Answer, headersOf } from "./refusal.ts";

/**
 * Refuses a connection in plain HTTP: the last that is written on it. By its date whose certificate is not valid sees whether
 * its own clock is wrong.
 */
export function answerRaw(socket: Duplex, answer: Answer): void {
  const { status, sentence } = answer;
  const lines = Object.entries(headersOf(answer)).map(([name, value]) => `${name}: ${value}\r\n`);
  answerAndEnd(
    socket,
    `HTTP/1.1 ${status} ${STATUS_CODES[status]}\r\nDate: ${new Date().toUTCString()}\r\n${lines.join("")}` +
      `Content-Type: text/plain\r\nContent-Length: ${sentence.length + 1}\r\n\r\n${sentence}\n`,
    status === 431 ? REST_OF_LARGE_HEADER : undefined,
  );
}
