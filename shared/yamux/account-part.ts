import { Queue, QueueNode } from "../basics/collections.ts";
import type { MemoryAccount, MemoryHolder } from "../limits/memory-account.ts";
import type { CountedStream, StreamMemory } from "./flow-control.ts";

/** The memory of a session as its parts use it. */
export interface SessionBudget {
  /** What the session's budget leaves for more held bytes. */
  readonly leftToHold: number;
  /** What it leaves for more credit. */
  readonly leftToReserve: number;
  /** The bytes that the session holds, whoever pays, have changed by `delta`. */
  count(delta: number): void;
  reclaimSoon(): void;
  /** Takes credit from the session's budget and from the account. Returns false if there is not enough. */
  reserveFrom(account: MemoryAccount, bytes: number): boolean;
  giveBackTo(account: MemoryAccount, bytes: number): void;
  forget(stream: CountedStream): void;
  /** The account pays for no stream any more. */
  removePart(account: MemoryAccount): void;
}

/**
 * The streams of a session that one account pays for, where several share the session: a link between two servers
 * carries streams of many clusters. The part takes no more of the session's budget than it leaves to others: alone half
 * of it, one of two a third.
 */
export class AccountPart implements MemoryHolder, StreamMemory {
  readonly streams = new Queue<CountedStream>();
  readonly #account: MemoryAccount;
  readonly #session: SessionBudget;
  readonly #node = new QueueNode<MemoryHolder>(this);
  #held = 0;
  #reserved = 0;

  constructor(account: MemoryAccount, session: SessionBudget) {
    this.#account = account;
    this.#session = session;
    account.enter(this.#node);
  }

  /** Bytes received that no reader has taken. */
  get held(): number {
    return this.#held;
  }

  /** What it may hold of the session's budget. */
  get most(): number {
    return (this.#session.leftToHold + this.#held) / 2;
  }

  get isSpent(): boolean {
    return this.#held > this.#session.leftToHold;
  }

  get mustShrink(): boolean {
    return this.#account.mustShrink;
  }

  hold(delta: number): void {
    this.#held += delta;
    this.#account.hold(delta);
    this.#session.count(delta);
    if (this.isSpent) this.#session.reclaimSoon();
  }

  reserve(bytes: number): boolean {
    if (this.isSpent || this.#reserved + bytes > this.#session.leftToReserve - bytes) return false;
    if (!this.#session.reserveFrom(this.#account, bytes)) return false;
    this.#reserved += bytes;
    return true;
  }

  giveBack(bytes: number): void {
    this.#reserved -= bytes;
    this.#session.giveBackTo(this.#account, bytes);
  }

  forget(stream: CountedStream): void {
    this.#session.forget(stream);
    if (this.streams.size > 0) return;
    this.close();
    this.#session.removePart(this.#account);
  }

  *reclaimables(): Iterable<CountedStream> {
    for (const stream of this.streams) if (stream.held > 0) yield stream;
  }

  /** The session is over. */
  close(): void {
    this.#node.leave();
  }
}
