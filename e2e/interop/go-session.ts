import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { once } from "node:events";
import type { Duplex } from "node:stream";
import type { SessionOptions } from "../../shared/yamux/bounds.ts";
import { Session } from "../../shared/yamux/session.ts";
import type { Stream } from "../../shared/yamux/stream.ts";
import { DuplexTransport } from "../../shared/yamux/testing/duplex-transport.ts";
import type { Role } from "./go-peer.ts";

/**
 * A session of ours with a Go process at the other end, which does what the first line of each stream says (main.go).
 */
export class GoSession implements Disposable {
  readonly session: Session;
  readonly carrier: Duplex;
  readonly closed: Promise<Error | undefined>;

  constructor(carrier: Duplex, goRole: Role, options: Partial<SessionOptions> = {}) {
    this.carrier = carrier;
    let onClosed: (reason: Error | undefined) => void = () => {};
    this.closed = new Promise((resolve) => {
      onClosed = resolve;
    });
    const role = goRole === "client" ? "server" : "client";
    const handler = { onStream: echo, onClosed: (reason: Error | undefined) => onClosed(reason) };
    this.session = new Session(role, new DuplexTransport(carrier), handler, options);
  }

  /** Opens a stream that Go treats by `command`; without `end` its line is not finished yet. */
  stream(command: string, { end = true } = {}): Stream {
    const stream = this.session.open(Buffer.from(end ? `${command}\n` : command));
    stream.on("error", () => {});
    return stream;
  }

  /** Go's whole answer to a command that needs no bytes from us. */
  async ask(command: string): Promise<string> {
    const stream = this.stream(command);
    stream.end();
    return (await this.read(stream)).toString();
  }

  /** Everything Go sends on this stream. */
  async read(stream: Stream): Promise<Buffer> {
    const chunks: Buffer[] = [];
    stream.on("data", (chunk: Buffer) => chunks.push(chunk));
    await once(stream, "end");
    return Buffer.concat(chunks);
  }

  /** Reads bytes with their SHA-256 behind them, checks it, and returns how many they were. */
  async readHashed(stream: Stream): Promise<number> {
    const hash = createHash("sha256");
    let tail = Buffer.alloc(0);
    let total = 0;
    stream.on("data", (chunk: Buffer) => {
      const bytes = Buffer.concat([tail, chunk]);
      const body = bytes.subarray(0, Math.max(0, bytes.length - 64));
      hash.update(body);
      total += body.length;
      tail = bytes.subarray(body.length);
    });
    stream.end();
    await once(stream, "end");
    assert.equal(tail.toString(), hash.digest("hex"));
    return total;
  }

  [Symbol.dispose](): void {
    this.session.destroy();
  }
}

function echo(stream: Stream): void {
  stream.on("error", () => {});
  stream.pipe(stream);
}
