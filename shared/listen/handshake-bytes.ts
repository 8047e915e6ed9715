import { BySource } from "../basics/by-source.ts";
import type { QueueNode } from "../basics/collections.ts";
import { SharedInterval } from "../basics/timers.ts";
import { setReading } from "../node/sockets.ts";
import { type HandshakeSource, sourceOf, WASTE, WastedBytes } from "./handshake-budget.ts";
import type { HandshakeInProgress, IncomingConnection } from "./incoming-connection.ts";

/** Maximum number of handshakes that are read at a time: OpenSSL may verify all of them in one turn. */
const READ_AT_ONCE = 4;
/** Interval in which the bytes are counted, and time for which handshakes are read while others wait, ms. */
const SLICE_MS = 1;

/**
 * Watches the TLS handshakes in progress of a port. It counts the bytes of those whose certificate is not accepted, and
 * makes their source wait: see `WastedBytes`. Bytes are counted because certificates are encrypted and Node does not
 * limit the length of a chain. The handshakes of a source that owes bytes end.
 *
 * OpenSSL verifies a chain as soon as it is read, and hundreds of clients can send theirs together and withhold the end
 * of the handshake. Therefore only a few handshakes are read at a time, and sources take turns.
 *
 * A source is a network here, or all proven networks at one side of a cluster.
 */
export class HandshakeBytes {
  readonly #wasted = new WastedBytes();
  readonly #all = new BySource<HandshakeInProgress>();
  /** Handshakes that are being read. */
  readonly #read = new Set<HandshakeInProgress>();
  readonly #end: (connection: IncomingConnection) => void;
  /** Present while a handshake is in progress. */
  #timer: QueueNode<() => void> | undefined;

  /** `end` is called for each handshake that must end because its source owes bytes. */
  constructor(end: (connection: IncomingConnection) => void) {
    this.#end = end;
  }

  /** Whether the source owes no bytes, so that a handshake of it may begin. */
  mayBegin(source: HandshakeSource): boolean {
    return !this.#wasted.owes(source);
  }

  /** Watches a handshake that has just begun, until `leave`. */
  watch(connection: IncomingConnection): void {
    const handshake = { connection, bytesBefore: connection.raw.bytesRead, charged: 0 };
    connection.handshake = handshake;
    this.#all.add(handshake, sourceOf(connection));
    this.#timer ??= SharedInterval.every(SLICE_MS).add(this.#onTimer);
    if (this.#read.size < READ_AT_ONCE) this.#read.add(handshake);
    else setReading(connection.raw, false);
  }

  /** The handshake is over. `isHarmless`: its client was accepted, or has shown no certificate. */
  leave(connection: IncomingConnection, isHarmless = false): void {
    const handshake = this.#forget(connection);
    if (handshake === undefined) return;
    if (isHarmless) this.#wasted.charge(connection, -handshake.charged);
    else if (this.#charge(handshake)) this.#endIndebted();
  }

  /**
   * A connection has flooded this process after its handshake. A proven network is charged here, and the acceptor's
   * longer penalties do not apply to it, because honest clients share the network.
   */
  onFlood({ network, budget }: IncomingConnection): void {
    if (budget.provenAs !== undefined) this.#wasted.charge({ network, budget }, WASTE.burst);
  }

  stop(): void {
    this.#timer?.leave();
  }

  #forget(connection: IncomingConnection): HandshakeInProgress | undefined {
    const { handshake } = connection;
    if (handshake === undefined) return undefined;
    connection.handshake = undefined;
    this.#all.delete(handshake);
    this.#read.delete(handshake); // one that pauses stays so: it is destroyed, and would be verified before
    return handshake;
  }

  /** Counts the new bytes of a handshake. Returns whether its source owes bytes now. */
  #charge(handshake: HandshakeInProgress): boolean {
    const { connection, bytesBefore, charged } = handshake;
    handshake.charged = connection.raw.bytesRead - bytesBefore;
    return handshake.charged > charged && this.#wasted.charge(connection, handshake.charged - charged);
  }

  readonly #onTimer = (): void => {
    let isOwed = false;
    for (const handshake of this.#read) if (this.#charge(handshake)) isOwed = true;
    if (isOwed) this.#endIndebted();
    if (this.#read.size < this.#all.size) this.#turn();
    if (this.#all.size > 0) return;
    this.#timer?.leave();
    this.#timer = undefined;
  };

  /** The handshakes that were read pause, and the next ones are read. */
  #turn(): void {
    const before = [...this.#read];
    this.#read.clear();
    for (const handshake of this.#takeNext()) {
      this.#all.add(handshake, sourceOf(handshake.connection)); // behind the others
      this.#read.add(handshake);
      setReading(handshake.connection.raw, true);
    }
    for (const handshake of before) if (!this.#read.has(handshake)) setReading(handshake.connection.raw, false);
  }

  /** Takes out all before any is put back: the only handshake of a source would be the next one again. */
  #takeNext(): HandshakeInProgress[] {
    const taken: HandshakeInProgress[] = [];
    for (let { next } = this.#all; next !== undefined && taken.length < READ_AT_ONCE; { next } = this.#all) {
      this.#all.delete(next);
      taken.push(next);
    }
    return taken;
  }

  #endIndebted(): void {
    for (const { connection } of this.#all) {
      if (!this.#wasted.owes(connection)) continue;
      this.#forget(connection);
      this.#end(connection);
    }
  }
}
