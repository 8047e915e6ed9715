import { BySource } from "../../shared/basics/by-source.ts";
import { Queue } from "../../shared/basics/collections.ts";
import type { TurnQueue } from "../../shared/basics/timers.ts";
import type { IncomingConnection } from "../../shared/listen/incoming-connection.ts";
import { resetSocket } from "../../shared/relay/reset.ts";
import { type RequestHandler, RequestReader } from "./request-reader.ts";

/** All TCP ports together may have so many times the waiting connections of one (`--max-waiting-connections`). */
export const ALL_PORTS_FACTOR = 4;

/**
 * Connections of all TCP ports and clusters together whose request has not come. One too many drops the oldest of the
 * network that has most.
 */
export class WaitingConnections {
  readonly #most: number;
  readonly #drops = new Map<IncomingConnection, () => void>();
  readonly #bySource = new BySource<IncomingConnection>();

  /** `mostOfOne`: the bound of one cluster or port. */
  constructor(mostOfOne: number) {
    this.#most = ALL_PORTS_FACTOR * mostOfOne;
  }

  get size(): number {
    return this.#bySource.size;
  }

  /** `drop` ends the connection, and calls `delete`. */
  add(connection: IncomingConnection, network: string, drop: () => void): void {
    this.#drops.set(connection, drop);
    this.#bySource.add(connection, network);
    const oldest = this.#bySource.size > this.#most ? this.#bySource.oldestOfFullest : undefined;
    if (oldest !== undefined) this.#drops.get(oldest)?.();
  }

  delete(connection: IncomingConnection): void {
    if (this.#drops.delete(connection)) this.#bySource.delete(connection);
  }
}

export interface PortConnectionsOptions {
  /** Maximum size of a request's header, bytes. */
  readonly headerLimit: number;
  /** How long a connection may take until its request has come, ms. */
  readonly deadlineMs: number;
  /**
   * Connections of this port whose request has not come. One more drops the oldest of the network that has most: real
   * clients take milliseconds.
   */
  readonly maxWaiting: number;
  /** The waiting connections of all TCP ports together, which have a bound of their own. Absent for a unix socket. */
  readonly waiting: WaitingConnections | undefined;
  /** Present: many connections that come at once are read in turns. */
  readonly turns?: TurnQueue;
  /** The deadline has passed. */
  onLate(connection: IncomingConnection): void;
  /** One was dropped for a newer one; it is destroyed already. */
  onDropped(): void;
}

/**
 * The connections that one port has accepted: in the state `request`, which are few and have a deadline, and in the
 * state `open`. Node checks its own timeouts for headers from time to time only, and not at all in an http.Server that
 * does not listen.
 */
export class PortConnections {
  readonly #options: PortConnectionsOptions;
  readonly #all = new Queue<IncomingConnection>();
  /** Those whose request has not come, except those that are set aside; in the order of arrival. */
  readonly #waiting = new BySource<IncomingConnection>();
  readonly #requests: RequestReader;
  #whenEmpty: (() => void) | undefined;

  constructor(options: PortConnectionsOptions, handler: RequestHandler) {
    this.#options = options;
    this.#requests = new RequestReader(options.headerLimit, handler);
  }

  get size(): number {
    return this.#all.size;
  }

  /** The number of connections whose request has not come, except those that are set aside. */
  get waiting(): number {
    return this.#waiting.size;
  }

  /**
   * Reads the request of a connection, and holds it until it closes; its socket has an error listener from now on.
   * `onClosedEarly`: the client has closed it before its request had come.
   */
  take(connection: IncomingConnection, onClosedEarly?: () => void): void {
    const { deadlineMs, maxWaiting, waiting, turns, onLate } = this.#options;
    const { socket, network } = connection;
    socket.on("error", ignore);
    socket.on("close", () => {
      if (this.#remove(connection)) onClosedEarly?.();
    });
    this.#all.join(connection.place);
    this.#waiting.add(connection, network);
    connection.setDeadline(deadlineMs, () => onLate(connection));
    if (this.#waiting.size > maxWaiting) this.#drop(this.#waiting.oldestOfFullest);
    if (waiting !== undefined && this.#waiting.has(connection)) {
      waiting.add(connection, network, () => this.#drop(connection));
    }
    const read = (): void => {
      if (!socket.destroyed) this.#requests.read(connection);
    };
    if (turns === undefined) read();
    else turns.run(read);
  }

  /**
   * From now on the client waits for the server: the connection no longer counts as waiting for a request. Its deadline
   * stays. The caller has to bound how many may do so at once.
   */
  setAside(connection: IncomingConnection): void {
    this.#waiting.delete(connection);
    this.#options.waiting?.delete(connection);
  }

  /** The request has come. Returns true the first time: each connection makes one request. */
  leaveWaiting(connection: IncomingConnection): boolean {
    connection.clearDeadline();
    this.setAside(connection);
    if (connection.state !== "request") return false;
    connection.state = "open";
    return true;
  }

  /** Ends a connection whose request has not come. */
  dismiss(connection: IncomingConnection): void {
    this.leaveWaiting(connection);
    connection.socket.destroy();
  }

  /** Ends all connections whose request has not come. */
  destroyWaiting(): void {
    for (const connection of this.#all) if (connection.state === "request") this.dismiss(connection);
  }

  /** Resets every connection, so that no client takes the part that it has received for the whole. */
  resetAll(): void {
    for (const connection of this.#all) {
      this.leaveWaiting(connection);
      resetSocket(connection.socket);
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

  #drop(connection: IncomingConnection | undefined): void {
    if (connection === undefined) return;
    this.dismiss(connection);
    this.#options.onDropped();
  }

  /** Returns true if the request had not come. */
  #remove(connection: IncomingConnection): boolean {
    connection.place.leave();
    const hadNoRequest = this.leaveWaiting(connection);
    connection.state = "closed";
    if (this.#all.size === 0) this.#whenEmpty?.();
    return hadNoRequest;
  }
}

function ignore(): void {}
