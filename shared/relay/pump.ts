import type { Duplex, Writable } from "node:stream";
import { compact } from "../basics/bytes.ts";
import type { SpliceMemory, WaitingSink } from "./splice-memory.ts";

/** Bytes that may wait in a Duplex before its source is paused. */
const MAX_WAITING = 64 * 1024;
/** Writes that may wait there: one of a few bytes costs as much memory as some hundred bytes. */
const MAX_WAITING_WRITES = 256;
/** The longest pause at a time for the sake of `pace`, ms. */
const MOST_PAUSE_MS = 1_000;

/** Returns for how long, ms, nothing more is read in the direction in which these bytes have passed. */
export type Pace = (bytes: number) => number;

/** One direction of a splice. */
export class Pump implements WaitingSink {
  bytes = 0;
  /** Writes since the sink last had nothing waiting. */
  waitingWrites = 0;
  memory: SpliceMemory | undefined;
  readonly source: Duplex;
  readonly sink: Duplex;
  readonly #writes: { write(chunk: Buffer, done?: () => void): boolean };
  readonly #pace: Pace | undefined;
  /** The source is paused until the sink has taken what it holds. */
  #waiting = false;
  /** The source is paused for the sake of `pace`. */
  #pacing = false;
  /**
   * The rest of a pause below the 1 ms of a timer: it is added to the next one, or small chunks would never be paced.
   */
  #pauseLeftMs = 0;
  #paceTimer: NodeJS.Timeout | undefined;

  constructor(source: Duplex, sink: Duplex, cork: boolean, pace: Pace | undefined) {
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
}

/** A shorter write may be what somebody types or waits for. */
const SHORT_WRITE = 4 * 1024;
/** A write of this size is worth a system call of its own. */
const FULL_WRITE = 48 * 1024;
/** This much is likely a part of a bulk transfer, and the next turns bring more of it: many streams share the link. */
const BULK_PART = 16 * 1024;
/** A part waits for at most `MORE_TURNS` more turns, and for at most `MOST_WAIT_MS`: on a busy loop a turn is long. */
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
