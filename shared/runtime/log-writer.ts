/** Bytes of lines that may wait for a reader. Of more, the oldest are dropped and counted. */
const MAX_WAITING = 1024 * 1024;
/** The memory of a batch beside its bytes. */
const BATCH_OVERHEAD = 128;
/** A turn of the event loop that logs more than this makes several batches. */
const MAX_BATCH = 64 * 1024;

/** Bounds of the pause before a full pipe is tried again, ms. */
const FIRST_PAUSE_MS = 10;
const LONGEST_PAUSE_MS = 250;
/** A log that takes no byte for this long has no reader, ms. */
const UNREAD_MS = 1_000;
/** How long the end of the process may wait for a slow reader, ms. */
const EXIT_MS = 5_000;

const NOT_READ = "nobody reads it";

/** Lines of one turn of the event loop. */
interface LineBatch {
  readonly bytes: Buffer;
  readonly lines: number;
}

export interface LogWriterOptions {
  /** Returns how many bytes were taken. It throws an error with the code EAGAIN where it would have to wait. */
  readonly output: (bytes: Buffer) => number;
  /** The line, or lines for people, that says how many lines were lost. */
  readonly lostLine: (lost: number, reason: string) => string;
  /** The log cannot be written, for example because the disk is full; called once. */
  readonly onFault: (reason: string) => void;
  readonly now?: () => number;
  /** Blocks the process. */
  readonly pause?: (ms: number) => void;
}

/**
 * The lines of a log on their way out. A log that nobody reads holds up nothing: its lines wait in bounded memory, and
 * those that are lost are counted (decision 0046). All lines of one turn of the event loop are one write. Newer lines
 * are kept before older ones, so that the last line before a crash is there.
 */
export class LogWriter {
  readonly #options: LogWriterOptions;
  readonly #now: () => number;
  #turn = "";
  #turnLines = 0;
  /** The first one may be written in part, and is never dropped. */
  readonly #batches: LineBatch[] = [];
  /** Bytes of the first batch that are written. */
  #written = 0;
  #waiting = 0;
  #lost = 0;
  #reason = NOT_READ;
  #hasFaultLogged = false;
  /** A fault has cut the last line that was written. */
  #isCut = false;
  #pauseMs = FIRST_PAUSE_MS;
  #retry: NodeJS.Timeout | undefined;
  #unreadSince: number | undefined;

  constructor(options: LogWriterOptions) {
    this.#options = options;
    this.#now = options.now ?? (() => performance.now());
  }

  /** The present fault of the log, as a sentence; `undefined`: none. */
  get fault(): string | undefined {
    if (this.#lost > 0) return `${this.#lost} lines of the log are lost: ${this.#reason}`;
    const since = this.#unreadSince;
    return since !== undefined && this.#now() - since >= UNREAD_MS ? `lines of the log wait: ${NOT_READ}` : undefined;
  }

  write(line: string): void {
    if (this.#turn === "") setImmediate(this.#endTurn);
    this.#turn += line;
    this.#turnLines++;
    if (this.#turn.length >= MAX_BATCH) this.#endTurn();
  }

  /** Called as the process exits: waits for a reader that reads, and not for one that has stopped. */
  readonly flush = (): void => {
    this.#pushTurn();
    const pause = this.#options.pause ?? block;
    const startedAt = this.#now();
    let lastTakenAt = startedAt;
    while (this.#batches.length > 0) {
      if (this.#writeBatches()) lastTakenAt = this.#now();
      if (this.#batches.length === 0) return;
      const now = this.#now();
      if (now - lastTakenAt >= UNREAD_MS || now - startedAt >= EXIT_MS) return;
      pause(FIRST_PAUSE_MS);
    }
  };

  readonly #endTurn = (): void => {
    // Lines that wait are gathered, so that they are few writes.
    if (this.#retry !== undefined && this.#turn.length < MAX_BATCH) return;
    this.#pushTurn();
    if (this.#retry === undefined) this.#writeOrRetry();
    while (this.#waiting > MAX_WAITING && this.#batches.length > 1) {
      this.#drop(1);
      this.#reason = NOT_READ;
    }
  };

  #pushTurn(): void {
    if (this.#turn === "") return;
    const bytes = Buffer.from(this.#isCut ? `\n${this.#turn}` : this.#turn);
    this.#batches.push({ bytes, lines: this.#turnLines });
    this.#waiting += bytes.length + BATCH_OVERHEAD;
    this.#turn = "";
    this.#turnLines = 0;
  }

  #drop(index: number): void {
    for (const { bytes, lines } of this.#batches.splice(index, 1)) {
      this.#waiting -= bytes.length + BATCH_OVERHEAD;
      this.#lost += lines;
    }
  }

  readonly #writeOrRetry = (): void => {
    this.#retry = undefined;
    this.#pushTurn();
    if (this.#writeBatches()) this.#pauseMs = FIRST_PAUSE_MS;
    if (this.#batches.length === 0) return;
    this.#retry = setTimeout(this.#writeOrRetry, this.#pauseMs).unref();
    this.#pauseMs = Math.min(2 * this.#pauseMs, LONGEST_PAUSE_MS);
  };

  /** Writes until all is written or nothing more is taken. Returns whether any byte was taken. */
  #writeBatches(): boolean {
    let isTaken = false;
    for (let first = this.#batches[0]; first !== undefined; first = this.#batches[0]) {
      try {
        this.#written += this.#options.output(first.bytes.subarray(this.#written));
      } catch (error) {
        if ((error as NodeJS.ErrnoException).code === "EAGAIN") {
          this.#unreadSince ??= this.#now();
          return isTaken;
        }
        this.#onFault(error as Error);
        continue;
      }
      isTaken = true;
      this.#unreadSince = undefined;
      if (this.#written === first.bytes.length) this.#onWritten(first);
    }
    return isTaken;
  }

  #onWritten({ bytes }: LineBatch): void {
    this.#batches.shift();
    this.#waiting -= bytes.length + BATCH_OVERHEAD;
    this.#written = 0;
    this.#isCut = false;
    if (this.#lost === 0) return;
    // Lines were lost behind the batch that is written now, where this line comes.
    const line = Buffer.from(this.#options.lostLine(this.#lost, this.#reason));
    this.#batches.unshift({ bytes: line, lines: 1 });
    this.#waiting += line.length + BATCH_OVERHEAD;
    this.#lost = 0;
  }

  /** The batch is lost, and the next one is tried: a disk may have room again. */
  #onFault({ message }: Error): void {
    this.#isCut ||= this.#written > 0;
    this.#written = 0;
    this.#drop(0);
    this.#reason = message;
    if (!this.#hasFaultLogged) this.#options.onFault(message);
    this.#hasFaultLogged = true;
  }
}

/** Nothing else can run while a process exits. */
function block(ms: number): void {
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, ms);
}
