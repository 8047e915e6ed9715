import type { EventEmitter } from "node:events";
import { BySource } from "../../shared/basics/by-source.ts";
import { untilAborted } from "../../shared/basics/promises.ts";
import { CulvertError } from "../../shared/outcomes.ts";

/** The peer whose token is verified. */
export interface TokenPeer {
  /** Its close frees the slot. */
  readonly socket: EventEmitter;
  /** Where it comes from (`networkOf`). */
  readonly network: string;
}

export interface SlotRules {
  /** Number of slots. One peer more drops the oldest of the network that has most. */
  readonly most: number;
  readonly deadlineMs: number;
  /** The refusal of a peer that is dropped. */
  readonly sentence: string;
}

/** When a peer that was dropped should come back, ms. */
const CROWDED_RETRY_MS = 1_000;

/** Bounds the peers of one side of a cluster whose tokens are being verified, which may take seconds. */
export class VerificationSlots {
  readonly #peers = new BySource<AbortController>();

  get size(): number {
    return this.#peers.size;
  }

  /** Rejects with `overloaded` for a peer that is dropped. `verify` must stop at the signal. */
  async run<T>(
    { socket, network }: TokenPeer,
    { most, deadlineMs, sentence }: SlotRules,
    verify: (signal: AbortSignal) => Promise<T>,
  ): Promise<T> {
    const slot = new AbortController();
    const leave = (): void => void this.#peers.delete(slot);
    slot.signal.addEventListener("abort", leave);
    socket.once("close", leave);
    this.#peers.add(slot, network);
    if (this.#peers.size > most) {
      this.#peers.oldestOfFullest?.abort(new CulvertError("overloaded", sentence, { retryAfterMs: CROWDED_RETRY_MS }));
    }
    try {
      const signal = AbortSignal.any([AbortSignal.timeout(deadlineMs), slot.signal]);
      return await untilAborted(verify(signal), slot.signal);
    } finally {
      socket.off("close", leave);
      leave();
    }
  }
}
