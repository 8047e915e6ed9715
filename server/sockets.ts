import type { Duplex } from "node:stream";
import { resetSocket } from "../shared/net/tls.ts";

/**
 * The connections that one port has accepted: those that have not yet said what they want, each with a deadline, and
 * those that have. Node's own timeouts for headers are looked at only from time to time, and not at all in an
 * http.Server that does not listen.
 */
export class Sockets {
  readonly #all = new Set<Duplex>();
  readonly #waiting = new Map<Duplex, NodeJS.Timeout>();
  #whenEmpty: (() => void) | undefined;

  get size(): number {
    return this.#all.size;
  }

  /** From now on the socket has an error listener, and is known until it closes. */
  add(socket: Duplex, deadlineMs: number, onLate: (socket: Duplex) => void): void {
    socket.on("error", ignore);
    socket.on("close", () => this.#remove(socket));
    this.#all.add(socket);
    this.#waiting.set(
      socket,
      setTimeout(() => onLate(socket), deadlineMs),
    );
  }

  /** The socket has said what it wants. True the first time: each is asked once. */
  stopWaiting(socket: Duplex): boolean {
    clearTimeout(this.#waiting.get(socket));
    return this.#waiting.delete(socket);
  }

  /** Ends those who have not asked for anything. */
  destroyWaiting(): void {
    for (const socket of this.#waiting.keys()) socket.destroy();
  }

  /** Ends every connection so that nobody takes a cut transfer for a whole one. */
  resetAll(): void {
    for (const socket of this.#all) resetSocket(socket);
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

  #remove(socket: Duplex): void {
    this.#all.delete(socket);
    this.stopWaiting(socket);
    if (this.#all.size === 0) this.#whenEmpty?.();
  }
}

function ignore(): void {}
