import { Queue, QueueNode } from "../basics/collections.ts";
import { SharedInterval } from "../basics/timers.ts";
import { type HandshakeSource, WASTE, WastedBytes } from "./handshake-budget.ts";
import type { HandshakeInProgress, IncomingConnection } from "./incoming-connection.ts";

/** Bytes of a handshake that are counted only when it ends: a certificate and an intermediate one are shorter. */
const USUAL_BYTES = 4 * 1024;
/** Interval between two checks of the handshakes in progress, ms. */
const LOOK_MS = 50;

/**
 * Counts the bytes of handshakes whose certificate is not accepted, and makes their sources wait: see `WastedBytes`.
 * Bytes are counted because certificates are encrypted and Node has no limit for the length of a chain. As soon as a
 * source owes bytes, its other handshakes in progress end: their certificates may already be in the kernel, and OpenSSL
 * would verify all of them in one turn of the event loop.
 */
export class HandshakeBytes {
  readonly #wasted = new WastedBytes();
  readonly #begun = new Queue<HandshakeInProgress>();
  readonly #end: (connection: IncomingConnection) => void;
  readonly #place = SharedInterval.every(LOOK_MS).add(() => this.#look());

  /** `end` is called for each handshake that must end because its source owes bytes. */
  constructor(end: (connection: IncomingConnection) => void) {
    this.#end = end;
  }

  /** Whether the source owes no bytes, so that a handshake of it may begin. */
  mayBegin(source: HandshakeSource): boolean {
    return !this.#wasted.owes(source);
  }

  /** Watches a handshake that begins, until `leave`. */
  watch(connection: IncomingConnection): void {
    const { bytesRead } = connection.raw;
    connection.handshake = new QueueNode({ connection, bytesBefore: bytesRead, charged: 0 });
    this.#begun.join(connection.handshake);
  }

  /** The handshake is over. `isHarmless`: its client was accepted, or has shown no certificate. */
  leave(connection: IncomingConnection, isHarmless = false): void {
    const handshake = this.#forget(connection);
    if (handshake === undefined) return;
    const { charged } = handshake;
    const bytes = isHarmless ? 0 : bytesOf(handshake);
    if (bytes !== charged && this.#wasted.charge(connection, bytes - charged)) this.#endIndebted();
  }

  /**
   * A connection has flooded this process after its handshake. A proven network is charged here, and the acceptor's
   * longer penalties do not apply to it, because honest clients share the network.
   */
  onFlood({ network, budget }: IncomingConnection): void {
    if (budget.isProven === true) this.#wasted.charge({ network, budget }, WASTE.burst);
  }

  stop(): void {
    this.#place.leave();
    this.#begun.clear();
  }

  /** Counts long chains while they arrive. */
  #look(): void {
    let isOwed = false;
    for (const handshake of this.#begun) {
      const more = bytesOf(handshake) - USUAL_BYTES - handshake.charged;
      if (more <= 0) continue;
      handshake.charged += more;
      if (this.#wasted.charge(handshake.connection, more)) isOwed = true;
    }
    if (isOwed) this.#endIndebted();
  }

  #endIndebted(): void {
    for (const { connection } of this.#begun) {
      if (!this.#wasted.owes(connection)) continue;
      this.#forget(connection);
      this.#end(connection);
    }
  }

  #forget(connection: IncomingConnection): HandshakeInProgress | undefined {
    const { handshake } = connection;
    connection.handshake = undefined;
    return handshake?.leave() === true ? handshake.member : undefined;
  }
}

function bytesOf({ connection: { raw }, bytesBefore }: HandshakeInProgress): number {
  return raw.bytesRead - bytesBefore;
}
