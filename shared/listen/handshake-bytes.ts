import { Queue, QueueNode } from "../basics/collections.ts";
import { SharedInterval } from "../basics/timers.ts";
import { type HandshakeSource, WASTE, WastedBytes } from "./handshake-budget.ts";
import type { HandshakeInProgress, IncomingConnection } from "./incoming-connection.ts";

/** Bytes that no accepted client needs at once in its handshake: a certificate and an intermediate one are shorter. */
const USUAL_BYTES = 4 * 1024;
const LOOK_MS = 50;

/**
 * Counts what comes in handshakes whose certificate is not accepted, and lets their sources wait: see `WastedBytes`.
 * The messages are encrypted, and Node has no bound for a chain, so bytes are counted. As soon as a source owes bytes,
 * its other handshakes in progress end: their certificates may be in the kernel already, and would be verified one
 * after the other in one turn of the event loop.
 */
export class HandshakeBytes {
  readonly #wasted = new WastedBytes();
  readonly #begun = new Queue<HandshakeInProgress>();
  readonly #end: (connection: IncomingConnection) => void;
  readonly #place = SharedInterval.every(LOOK_MS).add(() => this.#look());

  /** `end` ends a handshake because its source owes bytes. */
  constructor(end: (connection: IncomingConnection) => void) {
    this.#end = end;
  }

  mayBegin(source: HandshakeSource): boolean {
    return !this.#wasted.owes(source);
  }

  /** Watches a handshake that begins, until `leave`. */
  watch(connection: IncomingConnection): void {
    const { bytesRead } = connection.raw;
    connection.handshake = new QueueNode({ connection, bytesBefore: bytesRead, charged: 0 });
    this.#begun.join(connection.handshake);
  }

  /** Its handshake is over. `isHarmless`: its client was accepted, or has shown no certificate. */
  leave(connection: IncomingConnection, isHarmless = false): void {
    const handshake = this.#forget(connection);
    if (handshake === undefined) return;
    const { charged } = handshake;
    const bytes = isHarmless ? 0 : bytesOf(handshake);
    if (bytes !== charged && this.#wasted.charge(connection, bytes - charged)) this.#endIndebted();
  }

  /**
   * A connection has flooded this process after its handshake. Where its network has proved a credential, honest
   * clients share the network, and wait no longer than for certificates that are not accepted.
   */
  onFlood({ network, budget }: IncomingConnection): void {
    if (budget.isProven === true) this.#wasted.charge({ network, budget }, WASTE.burst);
  }

  stop(): void {
    this.#place.leave();
    this.#begun.clear();
  }

  /** A long chain is counted while it comes. */
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
