import type { Duplex } from "node:stream";
import { compact } from "../basics/bytes.ts";
import type { QueueNode } from "../basics/queue.ts";
import { SharedInterval } from "../basics/timers.ts";
import { memoryNeeded, wasMemoryNeeded } from "../limits/memory-account.ts";
import { GatheredWrites } from "./gathered-writes.ts";
import { endedByReset } from "./reset.ts";
import { type SpliceAccount, SpliceMemory, type WaitingSink } from "./splice-memory.ts";

export interface SpliceTotals {
  /** Bytes taken from the caller, towards the target. */
  readonly bytesUp: number;
  readonly bytesDown: number;
  /**
   * Who ended or failed first; `stall`: for too long one side took nothing of what we held for it, or nothing passed after
   * one side had ended; `memory`: it held some that was needed, for a reader that had stopped.
   */
  readonly endedBy: "caller" | "target" | "stall" | "memory";
  /** Absent when both directions ended in order. */
  readonly error?: Error;
}

export interface SpliceOptions {
  /**
   * Ends a splice in which one side takes no byte for so long while data for it is held, or after whose one end nothing
   * passes for so long, ms; 0: never. Node hears nothing more of a socket that has ended, not even a reset, so who has left
   * altogether cannot be told from who still listens.
   */
  readonly stallTimeoutMs?: number;
  /** Makes a reset visible to that side; by default the Duplex is destroyed. */
  readonly resetCaller?: () => void;
  readonly resetTarget?: () => void;
  /** Gather what comes for this side into few writes: for sockets. A yamux stream gathers by itself. */
  readonly corkCaller?: boolean;
  readonly corkTarget?: boolean;
  /** Where what waits in the sockets is counted, and who may end the splice when memory is short. */
  readonly memory?: SpliceAccount;
  /** Called with the bytes of every chunk, either way; for so long, ms, nothing more is read in that direction. */
  readonly pace?: ((bytes: number) => number) | undefined;
}

/** Bytes that may wait in a Duplex before its source is stopped: beside the window, all that a stalled reader holds. */
const MAX_WAITING = 64 * 1024;

/** The same in writes: one of a few bytes costs as much as some hundred. */
const MAX_WAITING_WRITES = 256;

/** The longest rest at a time, ms. */
const MOST_REST_MS = 1_000;

/** A stall is looked for so often within its time: no work for each chunk, and found at most two periods late. */
const STALL_CHECKS = 4;

/**
 * Joins two Duplex until both have closed: bytes, half-close and backpressure in both directions.
 *
 * An end in order is passed on as an end, a failure as a reset, so that neither side takes a cut transfer for a whole one.
 * Both are the splice's from here on, including their errors. Never rejects.
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
  readonly #stallLook: QueueNode<() => void> | undefined;
  readonly #memory: SpliceMemory | undefined;
  #endedBy: SpliceTotals["endedBy"] | undefined;
  #error: Error | undefined;
  #firstClosed: Side | undefined;
  readonly #halfStill = new Stillness();

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
      this.#stallLook = timer.add(this.#onStallCheck);
    }
    this.#bind(caller, "caller", this.#up);
    this.#bind(target, "target", this.#down);
  }

  #bind(side: Duplex, name: Side, reads: Pump): void {
    side.on("error", (error: Error) => this.#fail(name, error));
    side.on("close", () => this.#onClose(side, name));
    side.on("end", () => this.#onEnd(side, name, reads));
    // What has happened before will not be told again.
    if (side.closed) process.nextTick(() => this.#onClose(side, name));
    else if (side.readableEnded) this.#onEnd(side, name, reads);
    else if (!side.destroyed) reads.start();
  }

  #onEnd(side: Duplex, name: Side, reads: Pump): void {
    this.#endedBy ??= name;
    if (endedByReset(side)) side.destroy(new Error(`the ${name} reset the connection`));
    else reads.end();
  }

  /** May be called twice for a side that was destroyed just before the splice: `closed` runs ahead of its event. */
  #onClose(side: Duplex, name: Side): void {
    // A side whose writing end was closed although the other had not ended has taken less than it was sent.
    const other = name === "caller" ? this.#target : this.#caller;
    if (!side.readableEnded || !side.writableFinished || !other.readableEnded) {
      this.#fail(name, side.errored ?? new Error(`the ${name} closed before both directions had ended`));
    }
    this.#firstClosed ??= name;
    if (this.#firstClosed === name) return;
    this.#stallLook?.leave();
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

  #reset(side: Duplex, reset: (() => void) | undefined): void {
    if (side.destroyed) return;
    reset?.();
    side.destroy();
  }

  readonly #onStallCheck = (): void => {
    const stall = this.#stall();
    if (stall === undefined) return;
    this.#stallLook?.leave();
    this.#end("stall", stall);
  };

  readonly #onMemoryNeeded = (): void => this.#end("memory", memoryNeeded().message);

  #end(by: "stall" | "memory", sentence: string): void {
    this.#endedBy = by;
    this.#error ??= new Error(sentence);
    this.#reset(this.#caller, this.#options.resetCaller);
    this.#reset(this.#target, this.#options.resetTarget);
  }

  /** Why it has lasted for too long, called once in each period. */
  #stall(): string | undefined {
    const isStalled = [this.#up.isStalled(), this.#down.isStalled()];
    if (isStalled.includes(true)) return "one side took no byte for too long";
    const isHalf = this.#caller.readableEnded !== this.#target.readableEnded;
    if (!this.#halfStill.lasts(isHalf, this.#up.taken + this.#down.taken)) return undefined;
    return `the ${this.#caller.readableEnded ? "caller" : "target"} had ended, and the other side was silent for too long`;
  }
}

type Side = "caller" | "target";

/** One direction. */
class Pump implements WaitingSink {
  bytes = 0;
  /** Since the sink last had nothing waiting. */
  waitingWrites = 0;
  memory: SpliceMemory | undefined;
  readonly source: Duplex;
  readonly sink: Duplex;
  readonly #writes: { write(chunk: Buffer, done?: () => void): boolean };
  readonly #pace: SpliceOptions["pace"];
  /** For the sink to take what it holds. */
  #waiting = false;
  /** For the pace. */
  #resting = false;
  /** Less than the 1 ms that a timer takes: it is added to the next rest, or small chunks would never rest. */
  #restLeftMs = 0;
  #restTimer: NodeJS.Timeout | undefined;
  readonly #still = new Stillness();

  constructor(source: Duplex, sink: Duplex, cork: boolean, pace: SpliceOptions["pace"]) {
    this.source = source;
    this.sink = sink;
    this.#writes = cork ? new GatheredWrites(sink) : sink;
    this.#pace = pace;
  }

  start(): void {
    this.source.on("data", this.#onData);
    this.source.resume(); // a source that was paused by hand stays so, whoever listens
  }

  end(): void {
    if (!this.sink.writableEnded && !this.sink.destroyed) this.sink.end();
  }

  readonly #onData = (chunk: Buffer): void => {
    this.bytes += chunk.length;
    const { sink } = this;
    if (sink.destroyed || sink.writableEnded) return; // its 'close' tells the rest
    const isWaiting = sink.writableLength > 0;
    this.waitingWrites = isWaiting ? this.waitingWrites + 1 : 1;
    const isLast = this.waitingWrites >= MAX_WAITING_WRITES && !this.#waiting;
    if (isLast) this.#wait();
    const full = !this.#writes.write(isWaiting ? compact(chunk) : chunk, isLast ? this.#onWritable : undefined);
    // Not full alone: a sink that takes all at once is not worth a pause. But full, or no 'drain' would ever come.
    if (full && !this.#waiting && sink.writableLength >= MAX_WAITING) {
      this.#wait();
      sink.once("drain", this.#onWritable);
    }
    this.memory?.onWrite(full);
    if (this.#pace !== undefined) this.#rest(this.#pace(chunk.length));
  };

  #rest(longestPauseMs: number): void {
    if (this.#resting) return;
    const ms = Math.floor(longestPauseMs + this.#restLeftMs);
    this.#restLeftMs += longestPauseMs - ms;
    if (ms <= 0) return;
    this.#resting = true;
    this.source.pause();
    // A long rest is asked for again on the way: the limit may be another by then, or none.
    this.#restTimer = setTimeout(
      () => {
        this.#resting = false;
        if (ms > MOST_REST_MS) this.#rest(this.#pace?.(0) ?? 0);
        if (!this.#resting && !this.#waiting) this.source.resume();
      },
      Math.min(ms, MOST_REST_MS),
    );
  }

  /** Nothing is moved any more. */
  stop(): void {
    clearTimeout(this.#restTimer);
  }

  #wait(): void {
    this.#waiting = true;
    this.source.pause();
  }

  readonly #onWritable = (): void => {
    this.#waiting = false;
    if (!this.#resting) this.source.resume();
  };

  /** Bytes that the sink has taken. */
  get taken(): number {
    return this.bytes - this.sink.writableLength;
  }

  /** Whether the sink has taken nothing of what is held for it during the last `STALL_CHECKS` periods. */
  isStalled(): boolean {
    return this.#still.lasts(this.sink.writableLength > 0, this.taken);
  }
}

/** How many periods it has lasted that nothing moves. */
class Stillness {
  #takenBefore = 0;
  #checks = 0;

  /** Called once in each period: has nothing been taken during the last `STALL_CHECKS`, although it was `awaited`? */
  lasts(awaited: boolean, taken: number): boolean {
    this.#checks = awaited && taken === this.#takenBefore ? this.#checks + 1 : 0;
    this.#takenBefore = taken;
    return this.#checks > STALL_CHECKS;
  }
}
