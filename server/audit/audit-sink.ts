/** Where the lines of the audit trail go. */
export interface AuditSink {
  /**
   * Takes a whole line. It is written at once, or waits in bounded memory for the disk or a reader. A line for which
   * there is no room is lost: `SinkEvents.onLost` is called.
   */
  write(line: string): void;
  /** Lines wait. */
  readonly isWaiting: boolean;
  /** Why lines wait or are lost, in a few words and without paths; `undefined`: nothing is wrong. */
  readonly fault: string | undefined;
  /** Begins to write to the file that has the name now. Returns the error of one that cannot be opened. */
  reopen(): Error | undefined;
  /** Gives up what still waits. */
  close(): void;
}

export interface SinkEvents {
  readonly onLost: () => void;
  /** Lines have waited, and all of them are written now. */
  readonly onIdle: () => void;
}

/** Bytes of lines that may wait: about 2,000 lines. */
export const MAX_WAITING = 1024 * 1024;
/** How soon what failed is tried again, ms. */
export const RETRY_MS = 50;
/** A sink that takes no byte for this long, ms, has no reader. */
export const UNREAD_MS = 1_000;
export const NOT_READ = "nobody reads it";
