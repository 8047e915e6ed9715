import { QueueNode } from "../basics/collections.ts";

/** How short memory is, and what stops then; each level includes those before it (docs/decisions/0020). */
export const PRESSURE = {
  /** At most what may be held is held. */
  none: 0,
  /**
   * More is held: a new stream begins with a small window, `reserve` refuses, so that no window grows, and links keep
   * no more than they need to move. Connections that have stopped for longest are ended.
   */
  over: 1,
  /** Connections alone hold more than `limits.memory` allows: each of them is slowed down. */
  slowed: 2,
  /** Nothing more can be reclaimed: no stream begins. */
  full: 3,
} as const;
export type Pressure = (typeof PRESSURE)[keyof typeof PRESSURE];

/** Counts bytes that are held, and knows their holders. */
export interface HolderAccount {
  /** Bytes that are held have changed by `delta`. */
  hold(delta: number): void;
  /** Memory can be reclaimed from this holder until its node leaves the queue. */
  enter(node: QueueNode<Reclaimable>): void;
}

/** The bound of what all links of a cluster keep together. */
export interface LinkPool extends HolderAccount {
  readonly pressure: Pressure;
}

/** The memory that a tenant's sessions, links and connections hold together, against a bound that they share. */
export interface MemoryAccount extends LinkPool {
  /** Others need the credit that windows here have beyond their initial size. */
  readonly mustShrink: boolean;
  /**
   * Counts bytes that stay in the kernel although their connection has been ended: those of a unix socket, until its
   * reader closes. They count as long as the process is short of memory.
   */
  countOrphaned(bytes: number): void;
  /** Takes credit beyond an initial window from the pool. Returns false if there is none. */
  reserve(bytes: number): boolean;
  /** Gives credit back. */
  release(bytes: number): void;
  /** A stream has been refused, because the account is full. */
  onRefused(): void;
}

/** Something that holds memory and whose end frees it: a stream whose reader has stopped, a link whose peer has. */
export interface Reclaimable {
  /** Bytes that its end would free; 0: it cannot be evicted now. */
  readonly held: number;
  /** Time since when nothing of them has moved, ms on the clock of `performance.now()`. */
  readonly lastProgressAt: number;
  /** The longest time for which it stood still and then moved again, ms; 0: it never did. */
  readonly longestPauseMs: number;
  /** Ends it. `sentence`: why; left out, memory is short. */
  evict(sentence?: string): void;
}

/** The account of sessions that are bounded by their own budgets only. */
export const UNBOUNDED: MemoryAccount = {
  pressure: PRESSURE.none,
  mustShrink: false,
  hold: () => {},
  countOrphaned: () => {},
  reserve: () => true,
  release: () => {},
  onRefused: () => {},
  enter: () => {},
};

/**
 * Emitted by a stream at the moment when it is destroyed, before the event loop turns: what its connection holds
 * beside it stops counting at once, so that no other connection is ended for it.
 */
export const DESTROYED = Symbol("destroyed");

const MEMORY_SHORT = "memory is short, and this connection held some for a reader that has stopped or is slow";

/** Ends what held memory for a reader that had stopped or was slow. */
export function memoryNeeded(sentence = MEMORY_SHORT): NodeJS.ErrnoException {
  return Object.assign(new Error(sentence), { code: "ENOBUFS" });
}

export function wasMemoryNeeded(error: Error): boolean {
  return (error as NodeJS.ErrnoException).code === "ENOBUFS";
}

/**
 * Bytes of the process that an open connection takes while it carries nothing, by its kind: its socket, what reads from
 * it, and a stream or a WebSocket; measured.
 */
export const CONNECTION_BYTES = { unix: 26 * 1024, tcp: 26 * 1024, tls: 70 * 1024 } as const;

/** Bytes that a connection keeps until it continues, counted in the account that pays for them. */
export class HeldBytes implements Reclaimable {
  /** These bytes are never taken in parts. */
  readonly longestPauseMs = 0;
  #account: HolderAccount;
  readonly #onEvict: () => void;
  readonly #node = new QueueNode<Reclaimable>(this);
  #held = 0;
  #addedAt = 0;

  /** @param onEvict ends the connection, because memory is short, and calls `clear` */
  constructor(account: HolderAccount, onEvict: () => void) {
    this.#account = account;
    this.#onEvict = onEvict;
  }

  get held(): number {
    return this.#held;
  }

  get lastProgressAt(): number {
    return this.#addedAt;
  }

  add(bytes: number): void {
    this.#held += bytes;
    this.#addedAt = performance.now();
    this.#account.hold(bytes);
    this.#account.enter(this.#node);
  }

  /** From now on another account pays for them. */
  moveTo(account: HolderAccount): void {
    if (this.#held > 0) {
      this.#account.hold(-this.#held);
      account.hold(this.#held);
      account.enter(this.#node);
    }
    this.#account = account;
  }

  /** The bytes are gone, or another object counts them. */
  clear(): void {
    if (this.#held > 0) this.#account.hold(-this.#held);
    this.#held = 0;
    this.#node.leave();
  }

  evict(): void {
    this.#onEvict();
  }
}
