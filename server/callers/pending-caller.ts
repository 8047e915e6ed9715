import type { Duplex } from "node:stream";
import { ByteQueue } from "../../shared/basics/bytes.ts";
import type { MemoryAccount } from "../../shared/limits/memory-account.ts";
import { HeldBytes } from "../../shared/limits/memory-account.ts";
import { CulvertError } from "../../shared/outcomes.ts";
import type { Cancellable } from "../tunnels/opening.ts";
import * as reply from "./reply.ts";

/** Bytes that a caller may send before the 200. Beyond, nothing is read until the target is there. */
const MAX_EARLY_BYTES = 64 * 1024;

const MEMORY_NEEDED = "memory is short, and what came before the answer held some: try again";

function ignore(): void {}

/**
 * A caller between its CONNECT and the first byte of its tunnel.
 *
 * Only reading shows that a caller has left, so it is read from the start: what comes early is kept for the target, and
 * an end means gone. Node cannot tell a half-close from a close, and before the 200 nobody half-closes
 * (design: "The caller's side", 3).
 */
export class PendingCaller {
  readonly #socket: Duplex;
  /** What came early, until it goes to the target. */
  readonly #early = new ByteQueue();
  readonly #held: HeldBytes;
  #earlyBytes = 0;
  #gone: CulvertError | undefined;
  #step: Cancellable<unknown> | undefined;
  #established = false;
  #onSpoken: (() => void) | undefined;

  /** `memory`: the account of unauthenticated peers, until the caller is admitted. */
  constructor(socket: Duplex, memory: Pick<MemoryAccount, "hold" | "enter">) {
    this.#socket = socket;
    this.#held = new HeldBytes(memory, () => {
      this.refuse(new CulvertError("overloaded", MEMORY_NEEDED));
      this.#forget(); // now, and not when the refusal is written: others wait for this memory
    });
    socket.on("error", ignore); // for the connection's whole life
    socket.on("readable", this.#onReadable);
    socket.on("end", this.#onEnd);
    socket.on("close", this.#onEnd);
    if (socket.destroyed) this.#onEnd();
  }

  /** The caller is one of a cluster, whose account pays from now on for what the caller sends. */
  admitted(memory: Pick<MemoryAccount, "hold" | "enter">): void {
    this.#held.moveTo(memory);
  }

  /** One step towards the answer, given up when the caller leaves. */
  async during<T>(step: Cancellable<T>): Promise<T> {
    this.#step = step;
    if (this.#gone !== undefined) step.cancel(this.#gone);
    try {
      return await step.promise;
    } finally {
      this.#step = undefined;
    }
  }

  /**
   * Answers 200 and resolves when the target's bytes may follow: after `gapMs`, or as soon as the caller speaks. Without a gap
   * they follow at once, in a TLS record of their own: of a caller that is gone the answer may never be done (`endedByReset`).
   */
  async establish(gapMs: number): Promise<void> {
    this.#established = true;
    if (gapMs === 0) {
      reply.established(this.#socket);
      return;
    }
    await new Promise<void>((resolve) => {
      reply.established(this.#socket, () => {
        if (this.#socket.destroyed) return resolve();
        // Who spoke before the 200 says nothing about having read it when it goes on speaking.
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

  /** Its CONNECT is to be refused, whatever it waits for. False: it has been answered. */
  refuse(refusal: CulvertError): boolean {
    if (this.#established) return false;
    this.#gone ??= refusal;
    this.#step?.cancel(refusal);
    return true;
  }

  /** The bytes that came behind the CONNECT, for the target. Returns how many. */
  sendEarly(target: Duplex): number {
    for (let piece = this.#early.take(); piece !== undefined; piece = this.#early.take()) target.write(piece);
    this.#forget();
    return this.#earlyBytes;
  }

  /** Leaves the socket to whoever comes next. */
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
    while (this.#gone === undefined && this.#earlyBytes < MAX_EARLY_BYTES) {
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
    this.#gone ??= new CulvertError("caller_gone", "the caller left before the answer");
    this.#step?.cancel(this.#gone);
  };
}
