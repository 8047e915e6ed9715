import type { Socket } from "node:net";
import { BySource } from "../shared/basics/by-source.ts";
import { OrderedSet } from "../shared/basics/queue.ts";

export interface ClientConnectionsOptions {
  readonly most: number;
  /** After this time, ms, a backend has finished its handshake with a client, and the connection is never dropped. */
  readonly youngMs: number;
}

interface Newcomer {
  readonly client: Socket;
  readonly since: number;
}

/** Bounds the open connections of clients, and decides which one is dropped when there is one too many. */
export class ClientConnections {
  readonly #options: ClientConnectionsOptions;
  readonly #open = new OrderedSet<Socket>();
  /** The young ones; their age is checked only when there are too many. */
  readonly #young = new BySource<Newcomer>();
  #whenEmpty: (() => void) | undefined;

  constructor(options: ClientConnectionsOptions) {
    this.#options = options;
  }

  get size(): number {
    return this.#open.size;
  }

  /**
   * Adds a connection until it closes. Returns the connection to drop if there is one too many: the oldest young one of
   * the network that has most of them, which may be this one.
   */
  enter(client: Socket, network: string): Socket | undefined {
    const newcomer = { client, since: performance.now() };
    this.#open.add(client);
    this.#young.add(newcomer, network);
    client.on("close", () => {
      this.#young.delete(newcomer);
      this.#leave(client);
    });
    if (this.#open.size <= this.#options.most) return undefined;
    this.#forgetOlder(newcomer.since);
    const surplus = this.#young.oldestOfFullest;
    if (surplus === undefined) return undefined;
    this.#young.delete(surplus);
    this.#leave(surplus.client); // its close may take a moment
    return surplus.client;
  }

  [Symbol.iterator](): Iterator<Socket> {
    return this.#open[Symbol.iterator]();
  }

  /** Resolves when the last one has closed, or after `deadlineMs`, or at `stopWaiting`. */
  async empty(deadlineMs: number): Promise<void> {
    if (this.#open.size === 0) return;
    await new Promise<void>((resolve) => {
      const timer = setTimeout(resolve, deadlineMs);
      this.#whenEmpty = () => {
        clearTimeout(timer);
        resolve();
      };
    });
  }

  stopWaiting(): void {
    this.#whenEmpty?.();
  }

  #forgetOlder(now: number): void {
    for (const newcomer of this.#young) {
      if (now - newcomer.since < this.#options.youngMs) return;
      this.#young.delete(newcomer);
    }
  }

  #leave(client: Socket): void {
    this.#open.delete(client);
    if (this.#open.size === 0) this.#whenEmpty?.();
  }
}
