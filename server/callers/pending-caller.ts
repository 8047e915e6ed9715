import type { Duplex } from "node:stream";
import { ByteQueue } from "../../shared/basics/bytes.ts";
import { Cancellation } from "../../shared/basics/promises.ts";
import { HeldBytes, type MemoryAccount } from "../../shared/limits/memory-account.ts";
import { CulvertError } from "../../shared/outcomes.ts";
import * as reply from "./reply.ts";

/** Bytes that a caller may send before the 200; more stays unread until the target is connected. */
const MAX_EARLY_BYTES = 64 * 1024;

const MEMORY_NEEDED = "memory is short, and bytes that came before the answer held some: try again";

function ignore(): void {}

/**
 * A caller between its CONNECT and the first byte of its tunnel.
 *
 * Only reading shows that a caller has left. So its socket is read from the start: bytes that come early are kept for
 * the target, and an end means that the caller has gone. Node cannot tell a half-close from a close, and before the 200
 * no caller half-closes.
 */
export class PendingCaller {
  readonly #socket: Duplex;
  /** Cancelled when the caller has left, or its CONNECT is refused. */
  readonly cancellation = new Cancellation<CulvertError>();
  readonly #early = new ByteQueue();
  readonly #held: HeldBytes;
  #earlyBytes = 0;
  #established = false;
  /** Present after the 200, while the target's bytes wait. */
  #onSpoken: (() => void) | undefined;

  /** `memory`: the account of unauthenticated peers, until the caller is admitted. */
  constructor(socket: Duplex, memory: Pick<MemoryAccount, "hold" | "enter">) {
    this.#socket = socket;
    this.#held = new HeldBytes(memory, () => {
      this.refuse(new CulvertError("overloaded", MEMORY_NEEDED));
      this.#forget(); // at once, since others wait for this memory, and not when the refusal is written
    });
    socket.on("error", ignore); // it stays for the connection's whole life
    socket.on("readable", this.#onReadable);
    socket.on("end", this.#onEnd);
    socket.on("close", this.#onEnd);
    if (socket.destroyed) this.#onEnd();
  }

  /** From now on the account of the caller's cluster is charged for what the caller sends. */
  chargeTo(memory: Pick<MemoryAccount, "hold" | "enter">): void {
    this.#held.moveTo(memory);
  }

  /**
   * Answers 200 and resolves when the target's bytes may follow: after `gapMs`, or as soon as the caller sends
   * something. Without a gap they follow at once, in a TLS record of their own. That the answer is written is not
   * waited for: if the caller has gone, it may never be (`endedByReset`).
   */
  establish(gapMs: number): Promise<void> {
    this.#established = true;
    if (gapMs === 0) {
      reply.established(this.#socket);
      return Promise.resolve();
    }
    return new Promise((resolve) => {
      reply.established(this.#socket, () => {
        if (this.#socket.destroyed) return resolve();
        // Bytes of a caller that did not wait for the 200 do not show that the caller has read it.
        if (this.#earlyBytes === 0) {
          if (this.#socket.readableLength > 0 || this.#socket.readableEnded) return resolve();
          this.#onSpoken = () => {
            clearTimeout(timer);
            resolve();
          };
        }
        const timer = setTimeout(resolve, gapMs);
      });
    });
  }

  /** Refuses the CONNECT, whatever it waits for. Returns false if it has been answered. */
  refuse(refusal: CulvertError): boolean {
    if (this.#established) return false;
    this.cancellation.cancel(refusal);
    return true;
  }

  /** Sends the bytes that came behind the CONNECT to the target. Returns how many. */
  sendEarly(target: Duplex): number {
    for (let piece = this.#early.take(); piece !== undefined; piece = this.#early.take()) target.write(piece);
    this.#forget();
    return this.#earlyBytes;
  }

  /** Removes its listeners from the socket. */
  release(): void {
    this.#socket.off("readable", this.#onReadable);
    this.#socket.off("end", this.#onEnd);
    this.#socket.off("close", this.#onEnd);
    this.#onSpoken = undefined;
    this.#forget();
  }

  #keep(chunk: Buffer): void {
    this.#early.add(chunk);
    this.#earlyBytes += chunk.length;
    this.#held.add(chunk.length);
  }

  #forget(): void {
    this.#early.clear();
    this.#held.clear();
  }

  readonly #onReadable = (): void => {
    if (this.#established) {
      this.#onSpoken?.();
      return;
    }
    while (this.cancellation.reason === undefined && this.#earlyBytes < MAX_EARLY_BYTES) {
      const chunk: Buffer | null = this.#socket.read();
      if (chunk === null) return;
      this.#keep(chunk);
    }
  };

  readonly #onEnd = (): void => {
    if (this.#established) {
      this.#onSpoken?.();
      return;
    }
    this.refuse(new CulvertError("caller_gone", "the caller left before the answer"));
  };
}
