import { closeSync, constants, openSync, statSync } from "node:fs";
import { pino } from "pino";
import { openWithoutWaiting } from "../../shared/node/stdio.ts";
import { type AuditSink, MAX_WAITING, NOT_READ, RETRY_MS, type SinkEvents, UNREAD_MS } from "./audit-sink.ts";

const { O_APPEND, O_CREAT, O_NONBLOCK, O_RDWR, O_WRONLY } = constants;

/** Mode of a new file: only the server's user may read it, as with kube-apiserver's audit log. */
const MODE = 0o600;
/** Writes of at most so many bytes to a pipe are whole, or fail (pipe(7), PIPE_BUF). */
const MAX_WRITE = 4_096;

/**
 * A file, a FIFO, or stdout. pino's destination writes each line by one `write(2)` before it returns, so that a line
 * outlives the process (`sync: false` keeps lines in memory). Pipes are opened so that no write waits for a reader.
 */
export class FileSink implements AuditSink {
  readonly #path: string;
  readonly #events: SinkEvents;
  readonly #destination: ReturnType<typeof pino.destination>;
  readonly #isRegular: boolean;
  /** Why the last write has failed; the lines that it could not write wait. */
  #error: NodeJS.ErrnoException | undefined;
  #isFull = false;
  #reopenError: NodeJS.ErrnoException | undefined;
  #takenAt = 0;
  #retry: NodeJS.Timeout | undefined;

  /** `path` may be `-`, which is stdout. Throws the error of a file that cannot be opened. */
  constructor(path: string, events: SinkEvents) {
    this.#path = path;
    this.#events = events;
    const fd = path === "-" ? openWithoutWaiting(1) : openPipe(path);
    this.#isRegular = fd === undefined;
    this.#destination = pino.destination({
      dest: fd ?? path,
      sync: true,
      mode: MODE,
      maxLength: MAX_WAITING,
      maxWrite: MAX_WRITE,
      retryEAGAIN: () => false, // it would block the process
    });
    this.#destination.on("error", (error: NodeJS.ErrnoException) => {
      this.#error = error;
    });
    this.#destination.on("write", () => {
      this.#takenAt = performance.now();
    });
    this.#destination.on("drop", () => {
      this.#isFull = true;
      events.onLost();
    });
  }

  write(line: string): void {
    if (this.#isGone) this.#events.onLost();
    else this.#attempt(line);
  }

  /** Writes what waits, and then this. The destination reports a failure before it returns. */
  #attempt(text: string): void {
    const before = this.#error;
    if (before === undefined) this.#takenAt = performance.now();
    this.#error = undefined;
    this.#isFull = false;
    this.#destination.write(text);
    if (this.#isFull) this.#error = before; // it was not tried
    if (this.#error === undefined) {
      if (before !== undefined) this.#events.onIdle();
    } else if (!this.#isGone) {
      this.#retry ??= setTimeout(() => {
        this.#retry = undefined;
        this.#attempt("");
      }, RETRY_MS).unref();
    }
  }

  get isWaiting(): boolean {
    return this.#error !== undefined;
  }

  /** The reader of stdout has gone, and no other can come. */
  get #isGone(): boolean {
    return this.#error?.code === "EPIPE";
  }

  get fault(): string | undefined {
    const error = this.#error;
    if (error === undefined) return this.#reopenError && `it cannot be opened again (${this.#reopenError.code})`;
    if (error.code !== "EAGAIN") return `it cannot be written (${error.code})`;
    return performance.now() - this.#takenAt >= UNREAD_MS ? NOT_READ : undefined;
  }

  /** A file that cannot be opened leaves the one before in use. */
  reopen(): Error | undefined {
    if (!this.#isRegular) return undefined;
    try {
      const fd = openPipe(this.#path);
      if (fd === undefined) {
        this.#destination.reopen();
        this.#reopenError = undefined;
      } else {
        closeSync(fd);
        this.#reopenError = Object.assign(new Error("a FIFO is in its place"), { code: "EEXIST" });
      }
    } catch (error) {
      this.#reopenError = error as NodeJS.ErrnoException;
    }
    return this.#reopenError;
  }

  close(): void {
    clearTimeout(this.#retry);
    this.#destination.destroy();
  }
}

/**
 * Opens a FIFO, and returns `undefined` for anything else, which pino's destination can then open without waiting. A
 * FIFO is opened for reading, too: while it has no reader, lines wait in it, and there is no EPIPE. Throws if the path
 * cannot be opened.
 */
function openPipe(path: string): number | undefined {
  if (statSync(path, { throwIfNoEntry: false })?.isFIFO() === true) return openSync(path, O_RDWR | O_NONBLOCK);
  closeSync(openSync(path, O_WRONLY | O_APPEND | O_CREAT | O_NONBLOCK, MODE));
  return undefined;
}
