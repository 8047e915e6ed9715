import { connect, type Socket } from "node:net";
import { type AuditSink, MAX_WAITING, NOT_READ, RETRY_MS, type SinkEvents, UNREAD_MS } from "./audit-sink.ts";

/** Bytes of lines that are given to the socket at once. */
const MAX_BATCH = 64 * 1024;

/**
 * A collector that listens at a unix socket (a stream socket). `open(2)` of one fails with ENXIO, so that pino's
 * destination cannot write to it. Lines wait while the collector is away, or reads slowly. Lines that the kernel has
 * not taken when a connection ends are sent again over the next one.
 */
export class SocketSink implements AuditSink {
  readonly #path: string;
  readonly #events: SinkEvents;
  readonly #lines: string[] = [];
  #bytes = 0;
  #socket: Socket | undefined;
  /** Lines that the kernel is taking. */
  #sending: string | undefined;
  /** The kernel has taken something, or nothing waited. */
  #takenAt = 0;
  #error: string | undefined = "it is not connected yet";
  #retry: NodeJS.Timeout | undefined;
  #isClosed = false;

  constructor(path: string, events: SinkEvents) {
    this.#path = path;
    this.#events = events;
    this.#connect();
  }

  readonly #connect = (): void => {
    const socket = connect({ path: this.#path });
    socket.on("connect", () => {
      this.#socket = socket;
      this.#error = undefined;
      this.#takenAt = performance.now();
      this.#send();
    });
    socket.on("error", (error: NodeJS.ErrnoException) => {
      this.#error = `it cannot be written (${error.code})`;
    });
    socket.on("close", () => this.#onClosed());
    socket.resume(); // its end is seen then
  };

  #onClosed(): void {
    this.#socket = undefined;
    this.#error ??= "it has closed the connection";
    if (this.#sending !== undefined) this.#lines.unshift(this.#sending);
    this.#sending = undefined;
    if (!this.#isClosed) this.#retry = setTimeout(this.#connect, RETRY_MS).unref();
  }

  write(line: string): void {
    const length = Buffer.byteLength(line);
    if (this.#bytes + length > MAX_WAITING) {
      this.#events.onLost();
      return;
    }
    if (this.#bytes === 0) this.#takenAt = performance.now();
    this.#bytes += length;
    this.#lines.push(line);
    this.#send();
  }

  #send(): void {
    const socket = this.#socket;
    if (socket === undefined || this.#sending !== undefined || this.#lines.length === 0) return;
    const batch = this.#nextBatch();
    this.#sending = batch;
    socket.write(batch, (error) => {
      if (error || this.#sending !== batch) return; // it is sent again
      this.#sending = undefined;
      this.#bytes -= Buffer.byteLength(batch);
      this.#takenAt = performance.now();
      if (this.#bytes === 0) this.#events.onIdle();
      else this.#send();
    });
  }

  #nextBatch(): string {
    let length = 0;
    let count = 0;
    while (count < this.#lines.length && length < MAX_BATCH) length += (this.#lines[count++] as string).length;
    return this.#lines.splice(0, count).join("");
  }

  get isWaiting(): boolean {
    return this.#bytes > 0;
  }

  get fault(): string | undefined {
    if (this.#error !== undefined) return this.#error;
    return this.isWaiting && performance.now() - this.#takenAt >= UNREAD_MS ? NOT_READ : undefined;
  }

  reopen(): undefined {}

  close(): void {
    this.#isClosed = true;
    clearTimeout(this.#retry);
    if (this.isWaiting) this.#socket?.destroy();
    else this.#socket?.destroySoon();
  }
}
