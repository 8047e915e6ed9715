import { type MemoryAccount, UNBOUNDED } from "../limits/memory-account.ts";
import { SPEC_INITIAL_WINDOW } from "./frame.ts";

/** Every bound of a session, with what it protects from. */
export interface SessionOptions {
  /** Bytes a stream may receive before its reader has taken any; both ends must agree on it. */
  readonly initialWindow: number;
  /** A larger first window while memory is not short; the difference is announced with SYN or ACK, or right behind. */
  readonly freshWindow: number;
  /** The largest window one stream can grow to, bytes: the bandwidth-delay product worth serving. */
  readonly maxWindow: number;
  /**
   * Bytes that all windows of the session may have beyond their initial size. Streams are reset when more is unread.
   */
  readonly budget: number;
  /** The account of all sessions together: many of them, each within its budget, can be too much. */
  readonly pool: MemoryAccount;
  /** Streams open at once, both directions together: bounds the memory that a peer's SYNs can take. */
  readonly maxStreams: number;
  /** Streams we may open before the session is used up (spec: ids are never re-used). */
  readonly maxStreamIds: number;
  /** Payload of one data frame, bytes: one stream's turn. */
  readonly maxFramePayload: number;
  /** Bytes that the transport may hold untaken, which a control frame has to wait for. */
  readonly maxPending: number;
  /**
   * A tail behind a large frame waits for the next write only when so many bytes have gone one way and none has come
   * back, because a reader may be waiting for the end of a shorter message.
   */
  readonly bulkBytes: number;
  /** Frames that carry nothing (pings, empty data, updates of 0, resets) a peer may send in one second. */
  readonly maxIdleFramesPerSecond: number;
  /** Milliseconds; replaced in tests. */
  readonly now: () => number;
}

export const DEFAULT_OPTIONS: SessionOptions = {
  initialWindow: SPEC_INITIAL_WINDOW,
  freshWindow: 0,
  maxWindow: 16 * 1024 * 1024,
  budget: 64 * 1024 * 1024,
  pool: UNBOUNDED,
  maxStreams: 65_536,
  maxStreamIds: 2 ** 30,
  maxFramePayload: 64 * 1024,
  maxPending: 256 * 1024,
  bulkBytes: 8 * 1024 * 1024,
  maxIdleFramesPerSecond: 20_000,
  now: () => performance.now(),
};

/** Fills in the defaults. No maximum is below an initial size. */
export function completeOptions(options: Partial<SessionOptions>): SessionOptions {
  const chosen = { ...DEFAULT_OPTIONS, ...options };
  const { maxWindow, initialWindow, freshWindow } = chosen;
  return { ...chosen, maxWindow: Math.max(maxWindow, initialWindow, freshWindow) };
}
