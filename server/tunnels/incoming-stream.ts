import { receiveHead } from "../../shared/wire/stream-head.ts";
import type { Stream } from "../../shared/yamux/stream.ts";

// Streams that an agent, or another server, opens here.

/** The head comes with the SYN; this only bounds a peer that sends none, ms. */
const HEAD_TIMEOUT_MS = 5_000;
/** How long a refused stream may linger until the peer has ended its side, too, ms. */
const LINGER_MS = 5_000;

/** Reads the head of a stream. The stream is reset if it ends before, or the head does not come in time. */
export function readHead(stream: Stream, onHead: (json: Buffer) => void): void {
  const reset = (): void => {
    clearTimeout(timer);
    stream.reset();
  };
  const timer = setTimeout(reset, HEAD_TIMEOUT_MS).unref();
  const onRead = (json: Buffer): void => {
    clearTimeout(timer);
    onHead(json);
  };
  receiveHead(stream, onRead, reset);
}

/** Answers a refused stream and ends it cleanly, so that the answer arrives: a reset could overtake it. */
export function endWithAnswer(stream: Stream, answer: Buffer): void {
  if (stream.destroyed) return;
  stream.end(answer);
  stream.resume();
  const timer = setTimeout(() => stream.reset(), LINGER_MS).unref();
  stream.once("close", () => clearTimeout(timer));
}
