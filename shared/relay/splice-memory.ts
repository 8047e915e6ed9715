import { readFileSync } from "node:fs";
import { Socket } from "node:net";
import type { Duplex } from "node:stream";
import { TLSSocket } from "node:tls";
import { QueueNode } from "../basics/collections.ts";
import { SharedInterval } from "../basics/timers.ts";
import { DESTROYED, type MemoryAccount, type Reclaimable, wasMemoryNeeded } from "../limits/memory-account.ts";

/**
 * Interval at which what waits in sockets is counted, ms. It is also counted when a socket first takes nothing more: no
 * work for each chunk.
 */
const COUNT_MS = 100;
/** Memory that Node takes for a write that waits, beside its bytes. */
const WRITE_BYTES = 256;
/**
 * Bytes that the kernel holds for a unix socket that takes nothing more, its overhead included (measured: 5 % more).
 */
const UNIX_BUFFER = kernelSetting("core/wmem_default", 0, 212_992);
/** Bytes that are encrypted and not yet taken by the kernel. */
const TLS_BUFFER = 64 * 1024;
/** The most that the kernel keeps of a TCP connection to be sent, bytes (tcp(7), `tcp_wmem`). */
const TCP_BUFFER = kernelSetting("ipv4/tcp_wmem", 2, 4_194_304);

/** One direction of a splice, as far as it can hold memory. */
export interface WaitingSink {
  readonly source: Duplex;
  readonly sink: Duplex;
  /** Writes that the sink has not taken yet. */
  readonly waitingWrites: number;
  /** Bytes that it has taken since the splice began. */
  readonly taken: number;
}

/**
 * Counts what a splice holds in the sockets beside its stream, in Node and in the kernel. For a reader that has
 * stopped, that is several times what the stream's window allows.
 */
export class SpliceMemory implements Reclaimable {
  /** When a sink last took something of what waits. */
  lastProgressAt = 0;
  longestPauseMs = 0;
  readonly #account: MemoryAccount;
  readonly #directions: readonly WaitingSink[];
  readonly #onEvict: () => void;
  readonly #node = new QueueNode<Reclaimable>(this);
  #counting: QueueNode<() => void> | undefined;
  #held = 0;
  #taken = 0;
  #listens = false;

  constructor(account: MemoryAccount, directions: readonly WaitingSink[], onEvict: () => void) {
    this.#account = account;
    this.#directions = directions;
    this.#onEvict = onEvict;
  }

  /**
   * Something was written; `isFull`: its sink is not taking it. A splice that holds something is counted periodically.
   */
  onWrite(isFull: boolean): void {
    this.#counting ??= SharedInterval.every(COUNT_MS).add(this.#count);
    if (isFull && this.#held === 0) this.#count();
  }

  readonly #count = (): void => {
    let held = 0;
    let taken = 0;
    for (const direction of this.#directions) {
      held += waitingIn(direction);
      taken += direction.taken;
    }
    const now = performance.now();
    if (this.#held > 0 && taken !== this.#taken) {
      this.longestPauseMs = Math.max(this.longestPauseMs, now - this.lastProgressAt);
    }
    if (this.#held === 0 || taken !== this.#taken) this.lastProgressAt = now;
    this.#taken = taken;
    this.#set(held);
    if (held > 0) {
      this.#listen();
      this.#account.enter(this.#node);
    } else this.#stopCounting();
  };

  /** Most splices never hold anything; only those that do must notice the end of their stream at once. */
  #listen(): void {
    if (this.#listens) return;
    this.#listens = true;
    for (const { source } of this.#directions) source.once(DESTROYED, () => this.#onDestroyed(source));
  }

  #set(held: number): void {
    if (held !== this.#held) this.#account.hold(held - this.#held);
    this.#held = held;
  }

  /** Counts nothing until the next write. */
  #stopCounting(): void {
    this.#counting?.leave();
    this.#counting = undefined;
    this.#node.leave();
  }

  /** 0 once stream or socket was destroyed before its end: the rest is freed a turn of the event loop later. */
  get held(): number {
    return this.#isBroken ? 0 : this.#held;
  }

  /** A stream that has ended cleanly is destroyed, too, but the caller may still have to read what it sent. */
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

  evict(): void {
    this.#countOrphaned();
    this.close();
    this.#onEvict();
  }

  /** Has to come first: an account that holds nothing may be forgotten, and these bytes with it. */
  #countOrphaned(): void {
    const isWaiting = ({ sink }: WaitingSink): boolean => sink.writableLength > 0 && isUnix(sink);
    const orphaned = this.#directions.filter(isWaiting).length * UNIX_BUFFER;
    if (orphaned > 0) this.#account.countOrphaned(orphaned);
  }

  /** The splice is over. */
  close(): void {
    this.#set(0);
    this.#stopCounting();
  }
}

function waitingIn({ source, sink, waitingWrites, taken }: WaitingSink): number {
  const { writableLength } = sink;
  const inSink = writableLength === 0 ? 0 : writableLength + waitingWrites * WRITE_BYTES + kernelBytes(sink, taken);
  return readAhead(source) + inSink;
}

/** Bytes that a paused source has read: of HTTP/2 a whole window. A stream of a tunnel counts them itself (`held`). */
function readAhead(source: Duplex): number {
  if ("held" in source) return 0;
  return "readAhead" in source ? Number(source.readAhead) : source.readableLength;
}

/**
 * Bytes that the kernel holds for a socket that takes nothing more. Corked bytes were not offered to the kernel yet: a
 * fast transfer is not a reader that has stopped.
 */
function kernelBytes(sink: Duplex, taken: number): number {
  if (!(sink instanceof Socket) || sink.writableCorked > 0) return 0;
  const tls = sink instanceof TLSSocket ? TLS_BUFFER : 0;
  return tls + (isUnix(sink) ? UNIX_BUFFER : Math.min(taken, TCP_BUFFER));
}

function isUnix(sink: Duplex): boolean {
  return sink instanceof Socket && sink.remoteAddress === undefined;
}

/** One number of a setting in /proc/sys/net, or Linux's default where it is hidden. */
function kernelSetting(name: string, index: number, byDefault: number): number {
  try {
    return Number(readFileSync(`/proc/sys/net/${name}`, "utf8").trim().split(/\s+/)[index]) || byDefault;
  } catch {
    return byDefault;
  }
}
