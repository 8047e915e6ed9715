import { readFileSync } from "node:fs";
import { Socket } from "node:net";
import type { Duplex } from "node:stream";
import { TLSSocket } from "node:tls";
import { QueueNode } from "../basics/queue.ts";
import { SharedInterval } from "../basics/timers.ts";
import { DESTROYED, type MemoryAccount, type MemoryHolder, wasMemoryNeeded } from "../limits/memory-account.ts";
import { ProgressTracker, type Reclaimable } from "../limits/reclaim.ts";

/** What waits in sockets is counted so often, ms, and when one first takes nothing more: nobody pays for each chunk. */
const LOOK_MS = 100;
/** What Node takes for a write that waits, beside its bytes. */
const WRITE_BYTES = 256;
/** What the kernel has of a unix socket that takes nothing more, with its own overhead: a control group grows by 5 % more. */
const UNIX_BUFFER = kernelSetting("core/wmem_default", 0, 212_992);
/** Encrypted and not yet taken by the kernel. */
const TLS_BUFFER = 64 * 1024;
/** The most that the kernel keeps of a TCP connection to be sent, bytes (tcp(7), `tcp_wmem`). */
const TCP_BUFFER = kernelSetting("ipv4/tcp_wmem", 2, 4_194_304);

/** One direction of a splice, as far as it can hold memory. */
export interface WaitingSink {
  readonly source: Duplex;
  readonly sink: Duplex;
  /** Writes that the sink has not taken. */
  readonly waitingWrites: number;
  /** Bytes that it has taken since the beginning. */
  readonly taken: number;
}

/** Whose account a splice is on. */
export type SpliceAccount = Pick<MemoryAccount, "hold" | "enter" | "countOrphaned">;

/**
 * What a splice holds in the sockets beside its stream, in Node and in the kernel: of a reader that has stopped, that is
 * several times what the stream's window allows.
 */
export class SpliceMemory implements MemoryHolder, Reclaimable {
  readonly #account: SpliceAccount;
  readonly #directions: readonly WaitingSink[];
  readonly #onEvict: () => void;
  readonly #place = new QueueNode<MemoryHolder>(this);
  #look: QueueNode<() => void> | undefined;
  #held = 0;
  #taken = 0;
  #listens = false;
  #progress: ProgressTracker | undefined;

  constructor(account: SpliceAccount, directions: readonly WaitingSink[], onEvict: () => void) {
    this.#account = account;
    this.#directions = directions;
    this.#onEvict = onEvict;
  }

  /** Something was written; `isFull`: its sink is not taking it. What holds something already is counted by the next look. */
  onWrite(isFull: boolean): void {
    this.#look ??= SharedInterval.every(LOOK_MS).add(this.#count);
    if (isFull && this.#held === 0) this.#count();
  }

  readonly #count = (): void => {
    let held = 0;
    let taken = 0;
    for (const direction of this.#directions) {
      held += waitingIn(direction);
      taken += direction.taken;
    }
    if (this.#progress === undefined) this.#progress = new ProgressTracker(performance.now());
    else if (this.#held === 0) this.#progress.restart(performance.now());
    else if (taken !== this.#taken) this.#progress.progress(performance.now());
    this.#taken = taken;
    this.#set(held);
    if (held > 0) {
      this.#listen();
      this.#account.enter(this.#place);
    } else this.#rest();
  };

  /** Only one that has held something has to know at once that its stream is over; most never do. */
  #listen(): void {
    if (this.#listens) return;
    this.#listens = true;
    for (const { source } of this.#directions) source.once(DESTROYED, () => this.#onDestroyed(source));
  }

  #set(held: number): void {
    if (held !== this.#held) this.#account.hold(held - this.#held);
    this.#held = held;
  }

  /** Until the next write. */
  #rest(): void {
    this.#look?.leave();
    this.#look = undefined;
    this.#place.leave();
  }

  /** Nothing once the stream or the socket was destroyed before its end: the rest goes with it, a turn later. */
  get held(): number {
    return this.#isBroken ? 0 : this.#held;
  }

  /** A stream that has ended in order is destroyed, too, and the caller may still have to read what it sent. */
  get #isBroken(): boolean {
    return this.#directions.some(
      ({ source, sink }) => source.readableAborted || (sink.destroyed && !sink.writableFinished),
    );
  }

  #onDestroyed({ errored }: Duplex): void {
    if (!this.#isBroken || this.#held === 0) return;
    if (errored && wasMemoryNeeded(errored)) this.#countOrphaned();
    this.close();
  }

  get lastProgressAt(): number {
    return this.#progress?.lastProgressAt ?? 0;
  }

  get longestPauseMs(): number {
    return this.#progress?.longestPauseMs ?? 0;
  }

  *reclaimables(): Iterable<Reclaimable> {
    yield this;
  }

  evict(): void {
    this.#countOrphaned();
    this.close();
    this.#onEvict();
  }

  /** Comes before all else: an account that holds nothing may be forgotten, and these bytes with it. */
  #countOrphaned(): void {
    const isWaiting = ({ sink }: WaitingSink): boolean => sink.writableLength > 0 && isUnix(sink);
    const leftBehind = this.#directions.filter(isWaiting).length * UNIX_BUFFER;
    if (leftBehind > 0) this.#account.countOrphaned(leftBehind);
  }

  /** The splice is over. */
  close(): void {
    this.#set(0);
    this.#rest();
  }
}

/** A source that is not read any more has what it had read ahead; a stream counts that itself, as unread. */
function waitingIn({ source, sink, waitingWrites, taken }: WaitingSink): number {
  const { writableLength } = sink;
  if (writableLength === 0) return 0;
  const readAhead = source instanceof Socket ? source.readableLength : 0;
  return readAhead + writableLength + waitingWrites * WRITE_BYTES + kernelBytes(sink, taken);
}

/**
 * What the kernel holds for a socket that takes nothing more; others have no such buffers. What is corked was not offered
 * to the kernel yet: a transfer that is only fast is no reader that has stopped.
 */
function kernelBytes(sink: Duplex, taken: number): number {
  if (!(sink instanceof Socket) || sink.writableCorked > 0) return 0;
  const tls = sink instanceof TLSSocket ? TLS_BUFFER : 0;
  return tls + (isUnix(sink) ? UNIX_BUFFER : Math.min(taken, TCP_BUFFER));
}

function isUnix(sink: Duplex): boolean {
  return sink instanceof Socket && sink.remoteAddress === undefined;
}

/** One number of a setting in /proc/sys/net, or what Linux has by default where it is hidden. */
function kernelSetting(name: string, index: number, byDefault: number): number {
  try {
    return Number(readFileSync(`/proc/sys/net/${name}`, "utf8").trim().split(/\s+/)[index]) || byDefault;
  } catch {
    return byDefault;
  }
}
