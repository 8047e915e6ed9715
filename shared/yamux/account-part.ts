import { Queue, QueueNode } from "../basics/collections.ts";
import type { MemoryAccount, MemoryHolder } from "../limits/memory-account.ts";
import type { StreamMemory } from "./flow-control.ts";
import type { Stream } from "./stream.ts";
import type { SessionMemory } from "./stream-table.ts";

/**
 * The streams of a session that one account pays for, where several share the session: a link between two servers
 * carries streams of many clusters. The part takes no more of the session's budget than it leaves to others: alone half
 * of it, one of two a third.
 */
export class AccountPart implements MemoryHolder, StreamMemory {
  readonly streams = new Queue<Stream>();
  readonly #account: MemoryAccount;
  readonly #session: SessionMemory;
  readonly #node = new QueueNode<MemoryHolder>(this);
  #held = 0;
  #reserved = 0;

  constructor(account: MemoryAccount, session: SessionMemory) {
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

  forget(stream: Stream): void {
    this.#session.forget(stream);
    if (this.streams.size > 0) return;
    this.close();
    this.#session.removePart(this.#account);
  }

  *reclaimables(): Iterable<Stream> {
    for (const stream of this.streams) if (stream.held > 0) yield stream;
  }

  /** The session is over. */
  close(): void {
    this.#node.leave();
  }
}
