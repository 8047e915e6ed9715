import type { Duplex } from "node:stream";
import { ByteQueue } from "../../shared/basics/bytes.ts";
import { Cancellation } from "../../shared/basics/promises.ts";
import { HeldBytes, type MemoryAccount } from "../../shared/limits/memory-account.ts";
import type { IncomingConnection } from "../../shared/listen/incoming-connection.ts";
import { CulvertError } from "../../shared/outcomes.ts";

/** The caller's end of one CONNECT, whatever protocol the caller speaks (docs/decisions/0051). */
export interface CallerEnd {
  /** The bytes of the tunnel, with backpressure and half-close. Answers are written by this end alone. */
  readonly stream: Duplex;
  /** The connection that it came on, alone or among others. */
  readonly connection: IncomingConnection;
  /** Bytes of the process that this end takes while it carries nothing. */
  readonly idleBytes: number;
  /**
   * Pause between the answer and the target's first byte, ms; it ends early when the caller sends something. 0: none.
   */
  readonly gapMs: number;
  /** Says that the target is connected. `onWritten` is called when the answer is written, or the caller has gone. */
  establish(onWritten?: () => void): void;
  /** Answers with the outcome in place of `establish`, and ends the stream; a caller that has gone gets no answer. */
  refuse(refusal: CulvertError): void;
  /** Ends the stream so that the caller sees a failure and not a clean end. */
  reset(): void;
}

/** Bytes that a caller may send before its answer; more stays unread until the target is connected. */
const MAX_EARLY_BYTES = 64 * 1024;
/** Bytes that a caller may send on one HTTP/2 stream before they are read. Node takes them at once, and holds them. */
export const STREAM_WINDOW = 256 * 1024;

const MEMORY_NEEDED = "memory is short, and bytes that came before the answer held some: try again";

function ignore(): void {}

/**
 * A caller between its CONNECT and the first byte of its tunnel.
 *
 * Only reading shows that a caller has left. So its stream is read from the start: bytes that come early are kept for
 * the target, and an end means that the caller has gone. Node cannot tell a half-close from a close, and before its
 * answer no caller half-closes.
 */
export class PendingCaller {
  readonly #end: CallerEnd;
  /** Cancelled when the caller has left, or its CONNECT is refused. */
  readonly cancellation = new Cancellation<CulvertError>();
  readonly #early = new ByteQueue();
  readonly #held: HeldBytes;
  #earlyBytes = 0;
  #established = false;
  /** Present while the target's bytes wait for the end of the gap; called when the caller sends something, or ends. */
  #onCallerSent: (() => void) | undefined;

  /** `memory`: the account of unauthenticated peers, until the caller is admitted. */
  constructor(end: CallerEnd, memory: MemoryAccount) {
    const { stream } = end;
    this.#end = end;
    this.#held = new HeldBytes(memory, () => {
      this.cancellation.cancel(new CulvertError("overloaded", MEMORY_NEEDED));
      this.#forget(); // at once, since others wait for this memory, and not when the refusal is written
    });
    stream.on("error", ignore); // it stays for the connection's whole life
    stream.on("readable", this.#onReadable);
    stream.on("end", this.#onEnd);
    stream.on("close", this.#onEnd);
  }

  /** From now on the account of the caller's cluster is charged for what the caller sends. */
  chargeTo(memory: MemoryAccount): void {
    this.#held.moveTo(memory);
  }

  /**
   * Sends the bytes that came after the CONNECT to the target, says that the target is connected, and resolves with
   * their number when the target's bytes may follow: after the gap, or as soon as the caller sends something. Without a
   * gap they follow at once, even if the answer is not written yet: if the caller has gone, it may never be written
   * (`endedByReset`).
   */
  async establish(target: Duplex): Promise<number> {
    this.#established = true;
    for (let piece = this.#early.take(); piece !== undefined; piece = this.#early.take()) target.write(piece);
    this.#forget();
    if (this.#end.gapMs === 0) this.#end.establish();
    else await this.#establishWithGap(this.#end);
    this.release();
    return this.#earlyBytes;
  }

  #establishWithGap({ stream, gapMs }: CallerEnd): Promise<void> {
    return new Promise((resolve) => {
      this.#end.establish(() => {
        if (stream.destroyed) return resolve();
        // Bytes of a caller that did not wait for its answer do not show that the caller has read it.
        if (this.#earlyBytes === 0) {
          if (stream.readableLength > 0 || stream.readableEnded) return resolve();
          this.#onCallerSent = () => {
            clearTimeout(timer);
            resolve();
          };
        }
        const timer = setTimeout(resolve, gapMs);
      });
    });
  }

  /** Removes its listeners from the stream, except the one for errors, and frees the bytes that came early. */
  release(): void {
    const { stream } = this.#end;
    stream.off("readable", this.#onReadable);
    stream.off("end", this.#onEnd);
    stream.off("close", this.#onEnd);
    this.#onCallerSent = undefined;
    this.#forget();
  }

  #keep(chunk: Buffer): void {
    this.#early.add(chunk);
    this.#earlyBytes += chunk.length;
    this.#held.add(chunk.length);
    if (this.#earlyBytes >= MAX_EARLY_BYTES) this.#held.add(STREAM_WINDOW); // what comes now is not reported any more
  }

  #forget(): void {
    this.#early.clear();
    this.#held.clear();
  }

  readonly #onReadable = (): void => {
    if (this.#established) {
      this.#onCallerSent?.();
      return;
    }
    while (this.cancellation.reason === undefined && this.#earlyBytes < MAX_EARLY_BYTES) {
      const chunk: Buffer | null = this.#end.stream.read();
      if (chunk === null) return;
      this.#keep(chunk);
    }
  };

  readonly #onEnd = (): void => {
    if (this.#established) {
      this.#onCallerSent?.();
      return;
    }
    this.cancellation.cancel(new CulvertError("caller_gone", "the caller left before the answer"));
  };
}
