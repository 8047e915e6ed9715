import type { Server } from "node:http";
import { BySource } from "../../shared/basics/by-source.ts";
import { Queue } from "../../shared/basics/collections.ts";
import type { TurnQueue } from "../../shared/basics/timers.ts";
import { FirstRequest, headerParser, type RequestHandler } from "../../shared/listen/first-request.ts";
import type { IncomingConnection } from "../../shared/listen/incoming-connection.ts";
import { CROWDED_OUT, UNAUTHENTICATED } from "../../shared/listen/unauthenticated-sockets.ts";
import { resetSocket } from "../../shared/relay/reset.ts";
import type { ListenerName } from "../metrics/server-metrics.ts";
import type { ServerContext } from "../tunnels/context.ts";
import { type ConnectHeader, readUsualConnect } from "./usual-connect.ts";

/** All TCP ports together may have this many times the waiting connections of one (`--max-waiting-connections`). */
export const ALL_PORTS_FACTOR = 4;

const DROPPED = "connection dropped: too many have sent no request (--max-waiting-connections)";

/**
 * Connections of all TCP ports and clusters together whose request has not come. One too many drops the oldest of the
 * network that has the most of them.
 */
export class WaitingConnections {
  readonly #most: number;
  readonly #ports = new Map<IncomingConnection, Pick<PortConnections, "drop">>();
  readonly #bySource = new BySource<IncomingConnection>();

  /** `mostOfOne`: the bound of one cluster or port. */
  constructor(mostOfOne: number) {
    this.#most = ALL_PORTS_FACTOR * mostOfOne;
  }

  get size(): number {
    return this.#bySource.size;
  }

  /** `port` drops the connection if there are too many, and deletes it here. */
  add(connection: IncomingConnection, port: Pick<PortConnections, "drop">): void {
    this.#ports.set(connection, port);
    this.#bySource.add(connection, connection.network);
    const oldest = this.#bySource.size > this.#most ? this.#bySource.oldestOfFullest : undefined;
    if (oldest !== undefined) this.#ports.get(oldest)?.drop(oldest);
  }

  delete(connection: IncomingConnection): void {
    if (this.#ports.delete(connection)) this.#bySource.delete(connection);
  }
}

export interface PortConnectionsOptions {
  readonly listener: ListenerName;
  /** How long a connection may take until its request has come, ms. */
  readonly deadlineMs: number;
  /** The waiting connections of all TCP ports together, which have a bound of their own. Absent for a unix socket. */
  readonly waiting: WaitingConnections | undefined;
  /** Present: many connections that come at once are read in turns. */
  readonly turns?: TurnQueue;
}

export interface PortHandler extends RequestHandler {
  /** A CONNECT that was read without Node's parser. Absent: that parser reads every request. */
  onUsualConnect?(header: ConnectHeader, connection: IncomingConnection): void;
  /** The deadline has passed. Absent: the connection is ended without an answer. */
  onLate?(connection: IncomingConnection): void;
  /** The client has closed the connection before its request had come. */
  onClosedEarly?(connection: IncomingConnection): void;
}

/**
 * The connections that one port has accepted, in the states `request` and `open`. In the state `request` their number
 * is bounded, and each has a deadline. Node's own timeouts for headers would not do: it checks them from time to time
 * only, and not at all in an http.Server that does not listen.
 */
export class PortConnections {
  readonly #options: PortConnectionsOptions;
  readonly #all = new Queue<IncomingConnection>();
  /** Connections whose request has not come, except those that are set aside; in the order of arrival. */
  readonly #waiting = new BySource<IncomingConnection>();
  readonly #parser: Server;
  readonly #handler: PortHandler;
  readonly #context: ServerContext;
  #whenEmpty: (() => void) | undefined;

  constructor(options: PortConnectionsOptions, handler: PortHandler, context: ServerContext) {
    this.#options = options;
    this.#handler = handler;
    this.#context = context;
    this.#parser = headerParser(context.options.headerLimit, handler);
  }

  get size(): number {
    return this.#all.size;
  }

  /** The number of connections whose request has not come, except those that are set aside. */
  get waiting(): number {
    return this.#waiting.size;
  }

  /** Reads the request of a connection, and holds it until it closes; its socket has an error listener from now on. */
  take(connection: IncomingConnection): void {
    const { deadlineMs, waiting, turns } = this.#options;
    const { socket } = connection;
    socket.on("error", ignore);
    this.#hold(connection);
    this.#waiting.add(connection, connection.network);
    connection.onCrowdedOut = () => this.drop(connection, `connection dropped: ${CROWDED_OUT}`);
    connection.setDeadline(deadlineMs, () => this.#onLate(connection));
    // Real clients take milliseconds: the oldest of the network that has most makes room.
    const isFull = this.#waiting.size > this.#context.options.maxWaitingConnections;
    if (isFull) this.drop(this.#waiting.oldestOfFullest);
    if (this.#waiting.has(connection)) waiting?.add(connection, this);
    const read = (): void => {
      if (!socket.destroyed) this.#read(connection);
    };
    if (turns === undefined) read();
    else turns.run(read);
  }

  #read(connection: IncomingConnection): void {
    const handler = this.#handler;
    const begin = (): void => new FirstRequest(connection, this.#parser).begin();
    if (handler.onUsualConnect === undefined) begin();
    else readUsualConnect(connection.socket, (header) => handler.onUsualConnect?.(header, connection), begin);
  }

  /**
   * From now on the client waits for the server: the connection no longer counts as waiting for a request. Its deadline
   * stays. The code that calls this has to bound how many may do so at once.
   */
  setAside(connection: IncomingConnection): void {
    this.#waiting.delete(connection);
    this.#options.waiting?.delete(connection);
    UNAUTHENTICATED.delete(connection);
  }

  /** The request has come, and says that the connection belongs to others, which hold it from now on. */
  handOver(connection: IncomingConnection, others: PortConnections): void {
    this.setAside(connection);
    connection.place.leave();
    others.#hold(connection);
  }

  #hold(connection: IncomingConnection): void {
    connection.socket.on("close", () => this.#onClose(connection));
    this.#all.join(connection.place);
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

  /** Ends a connection whose request has not come, for a newer one. */
  drop(connection: IncomingConnection | undefined, sentence = DROPPED): void {
    if (connection === undefined) return;
    this.dismiss(connection);
    const { listener } = this.#options;
    const { metrics, throttledLog } = this.#context;
    metrics.waitingDropped(listener);
    throttledLog.write("warn", { listener }, sentence);
  }

  #onLate(connection: IncomingConnection): void {
    if (this.#handler.onLate === undefined) this.dismiss(connection);
    else this.#handler.onLate(connection);
  }

  #onClose(connection: IncomingConnection): void {
    connection.place.leave();
    const hadNoRequest = this.leaveWaiting(connection);
    connection.state = "closed";
    if (this.#all.size === 0) this.#whenEmpty?.();
    if (hadNoRequest) this.#handler.onClosedEarly?.(connection);
  }
}

function ignore(): void {}
