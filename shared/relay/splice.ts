import type { Duplex } from "node:stream";
import type { QueueNode } from "../basics/collections.ts";
import { SharedInterval } from "../basics/timers.ts";
import { type MemoryAccount, memoryNeeded, wasMemoryNeeded } from "../limits/memory-account.ts";
import { type Pace, Pump } from "./pump.ts";
import { endedByReset } from "./reset.ts";
import { SpliceMemory } from "./splice-memory.ts";

export interface SpliceTotals {
  /** Bytes taken from the caller, towards the target. */
  readonly bytesUp: number;
  readonly bytesDown: number;
  /**
   * The side that ended or failed first; `stall`: one side took nothing of what was held for it, or nothing passed
   * after one side had ended, for too long; `memory`: it held memory that was needed, for a reader that had stopped.
   */
  readonly endedBy: "caller" | "target" | "stall" | "memory";
  /** Absent if both directions ended cleanly. */
  readonly error?: Error;
}

export interface SpliceOptions {
  /**
   * Ends the splice when for this time, ms, one side takes no byte of what is held for it, or nothing passes after one
   * side has ended; 0: never. Node reports nothing more of a socket that has ended, not even a reset, so a peer that
   * has left looks like one that still listens.
   */
  readonly stallTimeoutMs?: number;
  /** Makes a reset visible to that side; by default the Duplex is only destroyed. `by`: as in `SpliceTotals`. */
  readonly resetCaller?: (by: SpliceTotals["endedBy"]) => void;
  readonly resetTarget?: (by: SpliceTotals["endedBy"]) => void;
  /** Gathers small chunks for this side into few writes: for sockets. A yamux stream gathers by itself. */
  readonly corkCaller?: boolean;
  readonly corkTarget?: boolean;
  /** The account of what waits in the sockets, which may end the splice when memory is short. */
  readonly memory?: MemoryAccount;
  /** Called with the bytes of every chunk, either way. */
  readonly pace?: Pace | undefined;
}

/** Checks within the stall timeout: no work for each chunk, and a stall is found at most two periods late. */
const STALL_CHECKS = 4;

/**
 * Joins two Duplex until both have closed: bytes, half-close and backpressure in both directions.
 *
 * A clean end is passed on as an end, a failure as a reset, so that neither side takes a truncated transfer for a whole
 * one. The splice owns both from here on and listens for their errors. Never rejects.
 */
export function splice(caller: Duplex, target: Duplex, options: SpliceOptions = {}): Promise<SpliceTotals> {
  return new Promise((resolve) => new Splice(caller, target, options, resolve));
}

class Splice {
  readonly #caller: Duplex;
  readonly #target: Duplex;
  readonly #options: SpliceOptions;
  readonly #resolve: (totals: SpliceTotals) => void;
  readonly #up: Pump;
  readonly #down: Pump;
  readonly #stallCheck: QueueNode<() => void> | undefined;
  readonly #memory: SpliceMemory | undefined;
  #endedBy: SpliceTotals["endedBy"] | undefined;
  #error: Error | undefined;
  #firstClosed: Side | undefined;
  readonly #upStall = new StallCounter();
  readonly #downStall = new StallCounter();
  readonly #halfClosed = new StallCounter();

  constructor(caller: Duplex, target: Duplex, options: SpliceOptions, resolve: (totals: SpliceTotals) => void) {
    this.#caller = caller;
    this.#target = target;
    this.#options = options;
    this.#resolve = resolve;
    this.#up = new Pump(caller, target, options.corkTarget ?? false, options.pace);
    this.#down = new Pump(target, caller, options.corkCaller ?? false, options.pace);
    if (options.memory !== undefined) {
      this.#memory = new SpliceMemory(options.memory, [this.#up, this.#down], this.#onMemoryNeeded);
      this.#up.memory = this.#memory;
      this.#down.memory = this.#memory;
    }
    if (options.stallTimeoutMs) {
      const timer = SharedInterval.every(Math.ceil(options.stallTimeoutMs / STALL_CHECKS));
      this.#stallCheck = timer.add(this.#onStallCheck);
    }
    this.#bind(caller, "caller", this.#up);
    this.#bind(target, "target", this.#down);
  }

  #bind(side: Duplex, name: Side, reads: Pump): void {
    side.on("error", (error: Error) => this.#fail(name, error));
    side.on("close", () => this.#onClose(side, name));
    side.on("end", () => this.#onEnd(side, name, reads));
    // There is no event for what has happened before.
    if (side.closed) process.nextTick(() => this.#onClose(side, name));
    else if (side.readableEnded) this.#onEnd(side, name, reads);
    else if (!side.destroyed) reads.start();
  }

  #onEnd(side: Duplex, name: Side, reads: Pump): void {
    this.#endedBy ??= name;
    if (!endedByReset(side)) {
      reads.end();
      return;
    }
    const reset = new Error(`the ${name} reset the connection`);
    // Node has destroyed an HTTP/2 stream by then if its connection is lost, and a second error is not reported.
    if (side.destroyed) this.#fail(name, reset);
    else side.destroy(reset);
  }

  /** Called twice for a side that was destroyed just before the splice: `closed` is true before the event. */
  #onClose(side: Duplex, name: Side): void {
    // A side whose writable end closed before the other side had ended has taken less than it was sent.
    const other = name === "caller" ? this.#target : this.#caller;
    if (!side.readableEnded || !side.writableFinished || !other.readableEnded) {
      this.#fail(name, side.errored ?? new Error(`the ${name} closed before both directions had ended`));
    }
    this.#firstClosed ??= name;
    if (this.#firstClosed === name) return;
    this.#stallCheck?.leave();
    this.#memory?.close();
    this.#up.stop();
    this.#down.stop();
    const totals = { bytesUp: this.#up.bytes, bytesDown: this.#down.bytes, endedBy: this.#endedBy ?? name };
    this.#resolve(this.#error === undefined ? totals : { ...totals, error: this.#error });
  }

  #fail(name: Side, error: Error): void {
    this.#endedBy ??= wasMemoryNeeded(error) ? "memory" : name;
    this.#error ??= error;
    if (name === "caller") this.#reset(this.#target, this.#options.resetTarget);
    else this.#reset(this.#caller, this.#options.resetCaller);
  }

  #reset(side: Duplex, reset: SpliceOptions["resetCaller"]): void {
    if (side.destroyed) return;
    if (this.#endedBy !== undefined) reset?.(this.#endedBy);
    side.destroy();
  }

  readonly #onStallCheck = (): void => {
    const stall = this.#stall();
    if (stall === undefined) return;
    this.#stallCheck?.leave();
    this.#end("stall", stall);
  };

  readonly #onMemoryNeeded = (): void => this.#end("memory", memoryNeeded().message);

  #end(by: "stall" | "memory", sentence: string): void {
    this.#endedBy = by;
    this.#error ??= new Error(sentence);
    this.#reset(this.#caller, this.#options.resetCaller);
    this.#reset(this.#target, this.#options.resetTarget);
  }

  /** Returns why the splice has stalled, if it has. Called once in each period. */
  #stall(): string | undefined {
    const [up, down] = [this.#up, this.#down];
    const isUpStalled = this.#upStall.lasts(up.sink.writableLength > 0, up.taken);
    const isDownStalled = this.#downStall.lasts(down.sink.writableLength > 0, down.taken);
    if (isUpStalled || isDownStalled) return "one side took no byte for too long";
    const isHalf = this.#caller.readableEnded !== this.#target.readableEnded;
    if (!this.#halfClosed.lasts(isHalf, up.taken + down.taken)) return undefined;
    const ended = this.#caller.readableEnded ? "caller" : "target";
    return `the ${ended} had ended, and the other side was silent for too long`;
  }
}

type Side = "caller" | "target";

/** Counts the periods in which nothing has moved. */
class StallCounter {
  #takenBefore = 0;
  #checks = 0;

  /** Called once in each period. Has nothing been taken in the last `STALL_CHECKS`, although it was `awaited`? */
  lasts(awaited: boolean, taken: number): boolean {
    this.#checks = awaited && taken === this.#takenBefore ? this.#checks + 1 : 0;
    this.#takenBefore = taken;
    return this.#checks > STALL_CHECKS;
  }
}
