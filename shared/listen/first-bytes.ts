import type { Socket } from "node:net";
import { GrowingBytes } from "../basics/bytes.ts";

/** What a reader of first bytes has made of them. */
export interface FirstBytes<T> {
  readonly found: T;
  /** Bytes in front that were meant for the reader alone: they are not given back. */
  readonly consumed: number;
}

export interface ReadFirstOptions<T> {
  /** Given every chunk once, in order; `undefined`: more is needed. */
  readonly reader: (chunk: Buffer) => FirstBytes<T> | undefined;
  readonly timeoutMs: number;
  /** The socket is paused, and all but the consumed bytes are in front of what it will deliver. */
  onFound(found: T): void;
  /** It took too long; the socket is paused. */
  onLate(): void;
}

/**
 * Reads the first bytes of a connection and gives them back, so that whoever comes next finds it as if nobody had read.
 * A socket that ends meanwhile says so by its own `close`.
 */
export function readFirst<T>(raw: Socket, { reader, timeoutMs, onFound, onLate }: ReadFirstOptions<T>): void {
  const bytes = new GrowingBytes();
  const timer = setTimeout(() => {
    release();
    onLate();
  }, timeoutMs);
  raw.on("data", onData);
  raw.on("close", release);
  raw.resume();

  function onData(chunk: Buffer): void {
    bytes.append(chunk);
    const result = reader(chunk);
    if (result === undefined) return;
    release();
    const rest = bytes.bytes.subarray(result.consumed);
    if (rest.length > 0) raw.unshift(rest);
    onFound(result.found);
  }

  function release(): void {
    clearTimeout(timer);
    raw.off("data", onData);
    raw.off("close", release);
    raw.pause();
  }
}
