import type { Duplex, Writable } from "node:stream";
import { compact } from "../basics/bytes.ts";
import type { QueueNode } from "../basics/collections.ts";
import { SharedInterval } from "../basics/timers.ts";
import { memoryNeeded, wasMemoryNeeded } from "../limits/memory-account.ts";
import { endedByReset } from "./reset.ts";
import { type SpliceAccount, SpliceMemory, STALL_CHECKS, StallCounter, type WaitingSink } from "./splice-memory.ts";

export interface SpliceTotals {
  /** Bytes taken from the caller, towards the target. */
  readonly bytesUp: number;
  readonly bytesDown: number;
  /**
   * The side that ended or failed first; `stall`: one side took nothing of what was held for it, or nothing passed
   * after one side had ended, for too long; `memory`: it held memory that was needed, for a reader that had stopped.
   */
  readonly endedBy: "caller" | "target" | "stall" | "memory";
  /** Absent if both directions ended in order. */
  readonly error?: Error;
}

export interface SpliceOptions {
  /**
   * Ends the splice when for so long, ms, one side takes no byte of what is held for it, or nothing passes after one
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
  readonly memory?: SpliceAccount;
  /**
   * Called with the bytes of every chunk, either way. For the time returned, ms, nothing more is read in that
   * direction.
   */
  readonly pace?: ((bytes: number) => number) | undefined;
}

/** Bytes that may wait in a Duplex before its source is paused. */
const MAX_WAITING = 64 * 1024;
/** Writes that may wait there: one of a few bytes costs as much memory as some hundred bytes. */
const MAX_WAITING_WRITES = 256;
/** The longest pause at a time for the sake of `pace`, ms. */
const MOST_PAUSE_MS = 1_000;

/**
 * Joins two Duplex until both have closed: bytes, half-close and backpressure in both directions.
 *
 * An end in order is passed on as an end, a failure as a reset, so that neither side takes a truncated transfer for a
 * whole one. The splice owns both from here on and listens for their errors. Never rejects.
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
    if (endedByReset(side)) side.destroy(new Error(`the ${name} reset the connection`));
    else reads.end();
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
    const isStalled = [this.#up.isStalled(), this.#down.isStalled()];
    if (isStalled.includes(true)) return "one side took no byte for too long";
    const isHalf = this.#caller.readableEnded !== this.#target.readableEnded;
    if (!this.#halfClosed.lasts(isHalf, this.#up.taken + this.#down.taken)) return undefined;
    const ended = this.#caller.readableEnded ? "caller" : "target";
    return `the ${ended} had ended, and the other side was silent for too long`;
  }
}

type Side = "caller" | "target";

/** One direction. */
class Pump implements WaitingSink {
  bytes = 0;
  /** Writes since the sink last had nothing waiting. */
  waitingWrites = 0;
  memory: SpliceMemory | undefined;
  readonly source: Duplex;
  readonly sink: Duplex;
  readonly #writes: { write(chunk: Buffer, done?: () => void): boolean };
  readonly #pace: SpliceOptions["pace"];
  /** The source is paused until the sink has taken what it holds. */
  #waiting = false;
  /** The source is paused for the sake of `pace`. */
  #pacing = false;
  /**
   * The rest of a pause below the 1 ms of a timer: it is added to the next one, or small chunks would never be paced.
   */
  #pauseLeftMs = 0;
  #paceTimer: NodeJS.Timeout | undefined;
  readonly #stall = new StallCounter();

  constructor(source: Duplex, sink: Duplex, cork: boolean, pace: SpliceOptions["pace"]) {
    this.source = source;
    this.sink = sink;
    this.#writes = cork ? new GatheredWrites(sink) : sink;
    this.#pace = pace;
  }

  start(): void {
    this.source.on("data", this.#onData);
    this.source.resume(); // a source that was paused before stays paused when a listener is added
  }

  end(): void {
    if (!this.sink.writableEnded && !this.sink.destroyed) this.sink.end();
  }

  readonly #onData = (chunk: Buffer): void => {
    this.bytes += chunk.length;
    const { sink } = this;
    if (sink.destroyed || sink.writableEnded) return; // its "close" event follows
    const isWaiting = sink.writableLength > 0;
    this.waitingWrites = isWaiting ? this.waitingWrites + 1 : 1;
    const isLast = this.waitingWrites >= MAX_WAITING_WRITES && !this.#waiting;
    if (isLast) this.#wait();
    const full = !this.#writes.write(isWaiting ? compact(chunk) : chunk, isLast ? this.#onWritable : undefined);
    // "drain" comes only where write() has returned false, and some sinks return false although nothing waits.
    if (full && !this.#waiting && sink.writableLength >= MAX_WAITING) {
      this.#wait();
      sink.once("drain", this.#onWritable);
    }
    this.memory?.onWrite(full);
    if (this.#pace !== undefined) this.#keepPace(this.#pace(chunk.length));
  };

  #keepPace(longestPauseMs: number): void {
    if (this.#pacing) return;
    const ms = Math.floor(longestPauseMs + this.#pauseLeftMs);
    this.#pauseLeftMs += longestPauseMs - ms;
    if (ms <= 0) return;
    this.#pacing = true;
    this.source.pause();
    // A long pause is taken in parts, because the limit may change meanwhile.
    this.#paceTimer = setTimeout(
      () => {
        this.#pacing = false;
        if (ms > MOST_PAUSE_MS) this.#keepPace(this.#pace?.(0) ?? 0);
        if (!this.#pacing && !this.#waiting) this.source.resume();
      },
      Math.min(ms, MOST_PAUSE_MS),
    );
  }

  /** The splice is over. */
  stop(): void {
    clearTimeout(this.#paceTimer);
  }

  #wait(): void {
    this.#waiting = true;
    this.source.pause();
  }

  readonly #onWritable = (): void => {
    this.#waiting = false;
    if (!this.#pacing) this.source.resume();
  };

  /** Bytes that the sink has taken. */
  get taken(): number {
    return this.bytes - this.sink.writableLength;
  }

  /** Has the sink taken nothing of what is held for it in the last `STALL_CHECKS` periods? */
  isStalled(): boolean {
    return this.#stall.lasts(this.sink.writableLength > 0, this.taken);
  }
}

/** A shorter write may be what somebody types or waits for. */
const SHORT_WRITE = 4 * 1024;
/** A write of this size is worth a system call of its own. */
const FULL_WRITE = 48 * 1024;
/** This much is likely a part of a bulk transfer, and the next turns bring more of it: many streams share the link. */
const BULK_PART = 16 * 1024;
/** A part waits at most for so many more turns, and at most for so many ms: on a busy loop a turn is long. */
const MORE_TURNS = 2;
const MOST_WAIT_MS = 2;

/** Sockets that were written to in this turn, or that wait from an earlier one. */
let gathered: GatheredWrites[] = [];

/**
 * Gathers what is written to a socket into few system calls: the first short write of a turn of the event loop goes at
 * once, all else at the end of the turn, and a part of a bulk transfer with what the next turns bring
 * (docs/decisions/0016). An end sends what waits; a socket that is destroyed loses it.
 */
export class GatheredWrites {
  readonly #socket: Writable;
  /** Something was written in this turn, or waits from an earlier one. */
  #begun = false;
  #corkedAtMs = 0;
  #turns = 0;

  constructor(socket: Writable) {
    this.#socket = socket;
  }

  /** Like `Writable.write`. */
  write(chunk: Buffer, done?: () => void): boolean {
    if (this.#begun || chunk.length >= SHORT_WRITE) this.#cork();
    if (!this.#begun) this.#waitForTurnEnd();
    return this.#socket.write(chunk, done);
  }

  #cork(): void {
    if (this.#socket.writableCorked > 0) return;
    this.#socket.cork();
    this.#corkedAtMs = performance.now();
  }

  #waitForTurnEnd(): void {
    this.#begun = true;
    if (gathered.push(this) === 1) setImmediate(onTurnEnd);
  }

  /** Called once in a turn. */
  endTurn(): void {
    if (this.#isBulkPart()) {
      this.#turns++;
      this.#waitForTurnEnd();
      return;
    }
    this.#begun = false;
    this.#turns = 0;
    if (this.#socket.writableCorked > 0) this.#socket.uncork();
  }

  #isBulkPart(): boolean {
    const { writableLength, writableCorked } = this.#socket;
    return (
      writableCorked > 0 &&
      writableLength >= BULK_PART &&
      writableLength < FULL_WRITE &&
      this.#turns < MORE_TURNS &&
      performance.now() - this.#corkedAtMs < MOST_WAIT_MS
    );
  }
}

function onTurnEnd(): void {
  const due = gathered;
  gathered = [];
  for (const each of due) each.endTurn();
}
