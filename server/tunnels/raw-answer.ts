import { STATUS_CODES } from "node:http";
import type { Duplex } from "node:stream";
import { answerAndEnd, REST_OF_LARGE_HEADER } from "../../shared/net/answer-and-end.ts";
import { type Answer, headersOf } from "./refusal.ts";

/** Refuses a connection in plain HTTP: the last that is written on it. */
export function answerRaw(socket: Duplex, answer: Answer): void {
  const { status, sentence } = answer;
  const lines = Object.entries(headersOf(answer)).map(([name, value]) => `${name}: ${value}\r\n`);
  answerAndEnd(
    socket,
    `HTTP/1.1 ${status} ${STATUS_CODES[status]}\r\n${lines.join("")}Content-Type: text/plain\r\n` +
      `Content-Length: ${sentence.length + 1}\r\n\r\n${sentence}\n`,
    status === 431 ? REST_OF_LARGE_HEADER : undefined,
  );
}
