import type { EventEmitter } from "node:events";
import { BySource } from "../../shared/basics/by-source.ts";
import { untilAborted } from "../../shared/basics/promises.ts";
import { CulvertError } from "../../shared/outcomes.ts";

/** Whose token is verified. */
export interface TokenPeer {
  /** Who closes it has gone, and gives the place back. */
  readonly socket: EventEmitter;
  /** Where it comes from (`networkOf`). */
  readonly network: string;
}

export interface TokenRoomRules {
  /** Peers in the room at once. One more drops the oldest of the network that has most. */
  readonly most: number;
  readonly deadlineMs: number;
  /** What the one that is dropped is told. */
  readonly sentence: string;
}

/** When a peer that was dropped should come again, ms. */
const CROWDED_RETRY_MS = 1_000;

/** The peers of one side of a cluster whose tokens are being verified, which may take seconds. */
export class TokenRoom {
  readonly #inside = new BySource<AbortController>();

  get size(): number {
    return this.#inside.size;
  }

  /** Rejects with `overloaded` for one that is dropped. `verify` must not go on after the signal. */
  async during<T>(
    { socket, network }: TokenPeer,
    { most, deadlineMs, sentence }: TokenRoomRules,
    verify: (signal: AbortSignal) => Promise<T>,
  ): Promise<T> {
    const place = new AbortController();
    const leave = (): void => void this.#inside.delete(place);
    place.signal.addEventListener("abort", leave);
    socket.once("close", leave);
    this.#inside.add(place, network);
    if (this.#inside.size > most) {
      this.#inside.oldestOfFullest?.abort(new CulvertError("overloaded", sentence, { retryAfterMs: CROWDED_RETRY_MS }));
    }
    try {
      const signal = AbortSignal.any([AbortSignal.timeout(deadlineMs), place.signal]);
      return await untilAborted(verify(signal), place.signal);
    } finally {
      socket.off("close", leave);
      leave();
    }
  }
}
