import { QueueNode } from "../basics/queue.ts";
import type { MemoryAccount, MemoryHold, MemoryHolder } from "./hold.ts";

/** Bytes that a connection keeps until it goes on, in the account of whoever pays for them. */
export class HeldBytes implements MemoryHold, MemoryHolder {
  #account: Pick<MemoryAccount, "hold" | "enter">;
  readonly #giveUp: () => void;
  readonly #place = new QueueNode<MemoryHolder>(this);
  #held = 0;
  #movedAt = 0;

  /** `giveUp` ends the connection, because memory is short; it calls `clear`. */
  constructor(account: Pick<MemoryAccount, "hold" | "enter">, giveUp: () => void) {
    this.#account = account;
    this.#giveUp = giveUp;
  }

  get held(): number {
    return this.#held;
  }

  /** Since when nothing was added. */
  get movedAt(): number {
    return this.#movedAt;
  }

  /** Nobody takes a part of them. */
  get paceMs(): number {
    return 0;
  }

  add(bytes: number): void {
    this.#held += bytes;
    this.#movedAt = performance.now();
    this.#account.hold(bytes);
    this.#account.enter(this.#place);
  }

  /** From now on another account pays for them. */
  moveTo(account: Pick<MemoryAccount, "hold" | "enter">): void {
    if (this.#held > 0) {
      this.#account.hold(-this.#held);
      account.hold(this.#held);
      account.enter(this.#place);
    }
    this.#account = account;
  }

  /** They are somebody else's now, or gone. */
  clear(): void {
    if (this.#held > 0) this.#account.hold(-this.#held);
    this.#held = 0;
    this.#place.leave();
  }

  *holds(): Iterable<MemoryHold> {
    yield this;
  }

  giveUp(): void {
    this.#giveUp();
  }
}
