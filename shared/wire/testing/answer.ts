import type { Duplex } from "node:stream";
import { type OpenAnswer, parseAnswer, receiveHead } from "../stream-head.ts";

/** The agent's answer off a stream, for tests that stand in for a server. */
export function readAnswer(stream: Duplex, deadlineMs: number): Promise<OpenAnswer> {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(() => reject(new Error(`no answer within ${deadlineMs} ms`)), deadlineMs);
    receiveHead(
      stream,
      (json) => {
        clearTimeout(timer);
        resolve(parseAnswer(json));
      },
      (error) => {
        clearTimeout(timer);
        reject(error);
      },
    );
  });
}
