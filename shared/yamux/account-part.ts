import { QueueNode } from "../basics/queue.ts";
import type { MemoryAccount, MemoryHolder } from "../limits/memory-account.ts";
import type { Stream } from "./stream.ts";
import type { StreamMemory } from "./stream-wire.ts";
import { StreamsById } from "./streams-by-id.ts";

/** The memory of the session that the part belongs to. */
export interface PartOwner {
  /** What the session's budget leaves for more held bytes. */
  readonly leftToHold: number;
  /** What it leaves for more credit. */
  readonly leftToReserve: number;
  count(delta: number): void;
  reclaimSoon(): void;
  reserve(bytes: number, account: MemoryAccount): boolean;
  unreserve(bytes: number): void;
  forget(stream: Stream): void;
  /** No stream is charged to the account any more. */
  onEmpty(account: MemoryAccount): void;
}

/**
 * The streams of a session that one account pays for, where several share the session: a link between two servers
 * carries streams of many clusters. The part takes no more of the session's budget than it leaves to others: alone half
 * of it, one of two a third.
 */
export class AccountPart implements MemoryHolder, StreamMemory {
  readonly #account: MemoryAccount;
  readonly #owner: PartOwner;
  readonly #streams = new StreamsById();
  readonly #node = new QueueNode<MemoryHolder>(this);
  #held = 0;
  #reserved = 0;

  constructor(account: MemoryAccount, owner: PartOwner) {
    this.#account = account;
    this.#owner = owner;
    account.enter(this.#node);
  }

  /** Bytes received that no reader has taken. */
  get held(): number {
    return this.#held;
  }

  /** What it may hold of the session's budget. */
  get most(): number {
    return (this.#owner.leftToHold + this.#held) / 2;
  }

  get isSpent(): boolean {
    return this.#held > this.#owner.leftToHold;
  }

  get mustShrink(): boolean {
    return this.#account.mustShrink;
  }

  add(stream: Stream): void {
    this.#streams.add(stream);
  }

  hold(delta: number): void {
    this.#held += delta;
    this.#account.hold(delta);
    this.#owner.count(delta);
    if (this.isSpent) this.#owner.reclaimSoon();
  }

  reserve(bytes: number): boolean {
    if (this.isSpent || this.#reserved + bytes > this.#owner.leftToReserve - bytes) return false;
    if (!this.#owner.reserve(bytes, this.#account)) return false;
    this.#reserved += bytes;
    return true;
  }

  giveBack(bytes: number): void {
    this.#reserved -= bytes;
    this.#owner.unreserve(bytes);
    this.#account.release(bytes);
  }

  forget(stream: Stream): void {
    this.#owner.forget(stream);
    this.#streams.delete(stream);
    if (this.#streams.size > 0) return;
    this.close();
    this.#owner.onEmpty(this.#account);
  }

  *reclaimables(): Iterable<Stream> {
    for (const stream of this.#streams) if (stream.held > 0) yield stream;
  }

  /** The session is over. */
  close(): void {
    this.#node.leave();
  }
}
