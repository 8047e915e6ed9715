import type { MemoryAccount } from "../limits/memory-account.ts";
import type { HeldCounter } from "./read-buffer.ts";
import type { Stream } from "./stream.ts";
import type { CreditBudget, PathTimes } from "./window.ts";

/** Where a stream counts what it holds and takes credit from. */
export interface StreamMemory extends CreditBudget, HeldCounter {
  /** The stream is destroyed and holds nothing any more. */
  forget(stream: Stream): void;
}

/** That of a session, in which other accounts can have parts. */
export interface SharedStreamMemory extends StreamMemory {
  charge(stream: Stream, account: MemoryAccount): StreamMemory;
}

/** What a stream asks of its session. */
export interface StreamWire extends PathTimes {
  readonly memory: SharedStreamMemory;
  /** The stream has bytes and window: give it turns until `takePayload` has taken all it can. */
  ready(stream: Stream): void;
  /** The ACK of a stream that the peer opened. */
  sendAck(stream: Stream): void;
  sendCredit(stream: Stream, delta: number): void;
  sendFin(stream: Stream): void;
  sendReset(stream: Stream): void;
  /** Both directions are over, or the stream was reset: the id can be forgotten. */
  release(stream: Stream): void;
  /** The tail of a write waits for more bytes only after this many bytes went one way. */
  readonly bulkBytes: number;
}
