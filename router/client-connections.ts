import type { Socket } from "node:net";
import { setTimeout as sleep } from "node:timers/promises";
import { networkOf } from "../shared/address/network.ts";
import { BySource } from "../shared/basics/by-source.ts";
import { OrderedSet } from "../shared/basics/collections.ts";
import { seconds } from "../shared/basics/text.ts";
import { type ClientHello, ClientHelloReader } from "../shared/listen/client-hello.ts";
import { peerOf } from "../shared/listen/incoming-connection.ts";
import { FirstBytes } from "../shared/listen/preface.ts";

interface Newcomer {
  readonly client: Socket;
  readonly since: number;
}

/** Bounds the open connections of clients, and decides which one is dropped when there is one too many. */
export class ClientConnections {
  readonly #max: number;
  readonly #youngMs: number;
  readonly #open = new OrderedSet<Socket>();
  /** The young ones; their age is checked only when there are too many. */
  readonly #young = new BySource<Newcomer>();
  #waiting: AbortController | undefined;

  /** After `youngMs` a backend has finished its handshake with a client, and the connection is never dropped. */
  constructor(max: number, youngMs: number) {
    this.#max = max;
    this.#youngMs = youngMs;
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
    if (this.#open.size <= this.#max) return undefined;
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
    this.#waiting = new AbortController();
    await sleep(deadlineMs, undefined, { signal: this.#waiting.signal }).catch(() => {});
  }

  stopWaiting(): void {
    this.#waiting?.abort();
  }

  #forgetOlder(now: number): void {
    for (const newcomer of this.#young) {
      if (now - newcomer.since < this.#youngMs) return;
      this.#young.delete(newcomer);
    }
  }

  #leave(client: Socket): void {
    this.#open.delete(client);
    if (this.#open.size === 0) this.stopWaiting();
  }
}

/**
 * Why a connection was not forwarded; the label of the metric. `gone` ended before its ClientHello, as health checks of
 * load balancers do. `late`, `crowded` and `full` met a bound, `no_files` the limit of file descriptors.
 */
export type RefusedReason =
  | "gone"
  | "late"
  | "crowded"
  | "full"
  | "no_files"
  | "unreadable"
  | "no_name"
  | "unknown_name"
  | "unreachable";

/** A connection that is not forwarded; `message` is for the log. */
export class RefusedConnection extends Error {
  readonly code: RefusedReason;

  constructor(code: RefusedReason, message: string) {
    super(message);
    this.code = code;
  }

  /** Refused by a TLS alert. Others are reset, so that a load balancer in front counts a failure. */
  get hasAlert(): boolean {
    return this.code === "unreadable" || this.code === "no_name" || this.code === "unknown_name";
  }
}

/** A connection whose ClientHello is not complete. */
interface PendingHello {
  readonly client: Socket;
  refuse(refusal: RefusedConnection): void;
}

/** Reads the ClientHellos of connections. Agents send theirs at once, so slow ones may be dropped. */
export class ClientHellos {
  readonly #timeoutMs: number;
  readonly #max: number;
  readonly #reading = new BySource<PendingHello>();

  /** At most `max` connections are in progress. A further one drops the oldest of the network that has most. */
  constructor(timeoutMs: number, max: number) {
    this.#timeoutMs = timeoutMs;
    this.#max = max;
  }

  get size(): number {
    return this.#reading.size;
  }

  /**
   * Resolves with the server name; the socket is paused and will deliver all bytes. Rejects with a `RefusedConnection`.
   */
  async read(client: Socket): Promise<string> {
    const hello = await this.#read(client);
    if (hello.problem !== undefined) throw new RefusedConnection("unreadable", hello.problem);
    if (hello.serverName === undefined) throw new RefusedConnection("no_name", "it asks for no server name (SNI)");
    return hello.serverName;
  }

  /** Destroys all connections whose ClientHello is not complete. */
  destroyAll(): void {
    for (const { client } of this.#reading) client.destroy();
  }

  #read(client: Socket): Promise<ClientHello> {
    const timeoutMs = this.#timeoutMs;
    return new Promise((resolve, reject) => {
      const refuse = (refusal: RefusedConnection): void => {
        leave();
        reject(refusal);
      };
      const onGone = (): void => refuse(new RefusedConnection("gone", "it ended before its ClientHello had"));
      const leave = (): void => {
        clearTimeout(timer);
        this.#reading.delete(reading);
        client.off("end", onGone).off("close", onGone);
        firstBytes.stop();
      };
      const hello = new ClientHelloReader();
      const reading: PendingHello = { client, refuse };
      this.#reading.add(reading, networkOf(peerOf(client).address));
      client.on("end", onGone).on("close", onGone);
      const firstBytes = new FirstBytes(client, (chunk) => {
        const found = hello.push(chunk);
        if (found === undefined) return;
        firstBytes.giveBack();
        leave();
        resolve(found);
      });
      const sentence = `its ClientHello did not come to its end in ${seconds(timeoutMs)}`;
      const timer = setTimeout(() => refuse(new RefusedConnection("late", sentence)), timeoutMs);
      if (this.#reading.size > this.#max) this.#dropOldest();
    });
  }

  #dropOldest(): void {
    const sentence = "too many have not ended their ClientHello: the oldest of the network that has most was dropped";
    this.#reading.oldestOfFullest?.refuse(new RefusedConnection("crowded", sentence));
  }
}
