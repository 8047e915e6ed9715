import type { Duplex } from "node:stream";
import { BySource } from "../../shared/basics/by-source.ts";
import { OrderedSet } from "../../shared/basics/queue.ts";
import { resetSocket } from "../../shared/relay/reset.ts";
import type { WaitingConnections } from "./waiting-connections.ts";

export interface SocketsOptions {
  /** How long a connection may take to say what it wants, ms. */
  readonly deadlineMs: number;
  /**
   * How many may take their time at once. One more drops the oldest of the network that has most: real ones take
   * milliseconds, held ones grow old.
   */
  readonly maxWaiting: number;
  /** Those of all ports together, which have a bound of their own. */
  readonly all: WaitingConnections;
  /** The deadline has passed. */
  onLate(socket: Duplex): void;
  /** One was dropped for a newer one; it is destroyed already. */
  onDropped(): void;
}

/**
 * The connections that one port has accepted: those that have not yet said what they want, which are few and have a
 * deadline, and those that have. Node's own timeouts for headers are looked at only from time to time, and not at all in
 * an http.Server that does not listen.
 */
export class Sockets {
  readonly #options: SocketsOptions;
  readonly #all = new OrderedSet<Duplex>();
  /** Of those that have not said what they want. */
  readonly #deadlines = new WeakMap<Duplex, NodeJS.Timeout>();
  /** The same, but for those that are set aside; in the order of arrival. */
  readonly #waiting = new BySource<Duplex>();
  #whenEmpty: (() => void) | undefined;

  constructor(options: SocketsOptions) {
    this.#options = options;
  }

  get size(): number {
    return this.#all.size;
  }

  /** Those that have not said what they want, but for those that are set aside. */
  get waiting(): number {
    return this.#waiting.size;
  }

  /**
   * From now on the socket has an error listener, and is known until it closes. `network`: where it comes from.
   * `onLeft`: its peer has ended it before it said what it wants.
   */
  add(socket: Duplex, network: string, onLeft?: () => void): void {
    const { deadlineMs, maxWaiting, all, onLate } = this.#options;
    socket.on("error", ignore);
    socket.on("close", () => {
      if (this.#remove(socket)) onLeft?.();
    });
    this.#all.add(socket);
    this.#waiting.add(socket, network);
    this.#deadlines.set(
      socket,
      setTimeout(() => onLate(socket), deadlineMs),
    );
    if (this.#waiting.size > maxWaiting) this.#drop(this.#waiting.oldestOfFullest);
    if (this.#waiting.has(socket)) all.add(socket, network, () => this.#drop(socket));
  }

  /**
   * From now on it waits for an answer, and takes no room of those who say nothing; its deadline stays. How many may do so
   * at once is the caller's to bound.
   */
  setAside(socket: Duplex): void {
    this.#waiting.delete(socket);
    this.#options.all.delete(socket);
  }

  /** The socket has said what it wants. True the first time: each is asked once. */
  stopWaiting(socket: Duplex): boolean {
    clearTimeout(this.#deadlines.get(socket));
    this.setAside(socket);
    return this.#deadlines.delete(socket);
  }

  /** Ends one that has not said what it wants; it has not left by itself. */
  dismiss(socket: Duplex): void {
    this.stopWaiting(socket);
    socket.destroy();
  }

  /** Ends those who have not asked for anything. */
  destroyWaiting(): void {
    for (const socket of this.#all) if (this.#deadlines.has(socket)) this.dismiss(socket);
  }

  /** Ends every connection so that nobody takes a cut transfer for a whole one. */
  resetAll(): void {
    for (const socket of this.#all) {
      this.stopWaiting(socket);
      resetSocket(socket);
    }
  }

  /** Resolves when the last connection has closed, or after `deadlineMs`. */
  async empty(deadlineMs: number): Promise<void> {
    if (this.#all.size === 0) return;
    await new Promise<void>((resolve) => {
      const timer = setTimeout(resolve, deadlineMs);
      this.#whenEmpty = () => {
        clearTimeout(timer);
        resolve();
      };
    });
  }

  #drop(socket: Duplex | undefined): void {
    if (socket === undefined) return;
    this.dismiss(socket);
    this.#options.onDropped();
  }

  /** True: it had not said what it wants. */
  #remove(socket: Duplex): boolean {
    this.#all.delete(socket);
    const waited = this.stopWaiting(socket);
    if (this.#all.size === 0) this.#whenEmpty?.();
    return waited;
  }
}

function ignore(): void {}
