import { BySource } from "../basics/by-source.ts";
import type { QueueNode } from "../basics/collections.ts";
import { SharedInterval } from "../basics/timers.ts";
import { setReading } from "../node/sockets.ts";
import { type HandshakeBudget, type HandshakeSource, WASTE, WastedBytes } from "./handshake-budget.ts";
import type { HandshakeInProgress, IncomingConnection } from "./incoming-connection.ts";

/** Maximum number of handshakes of one source that are read at a time: OpenSSL may verify all of them in one turn. */
const READ_AT_ONCE = 4;
/** Time for which a handshake is read while others of its source wait, and interval of the checks, ms. */
const SLICE_MS = 10;

/**
 * Watches the TLS handshakes in progress of a port. It counts the bytes of those whose certificate is not accepted, and
 * makes their source wait: see `WastedBytes`. Bytes are counted because certificates are encrypted and Node does not
 * limit the length of a chain. The handshakes of a source that owes bytes end.
 *
 * OpenSSL verifies a chain as soon as it is read, and hundreds of clients can send theirs together and withhold the end
 * of the handshake. Therefore only a few handshakes of a source are read at a time, the oldest first, and they take
 * turns.
 *
 * A source is a network here, or all proven networks at one side of a cluster.
 */
export class HandshakeBytes {
  readonly #wasted = new WastedBytes();
  /** Handshakes that are being read. */
  readonly #read = new BySource<HandshakeInProgress>();
  /** Handshakes that wait to be read. */
  readonly #paused = new BySource<HandshakeInProgress>();
  /** Names of the sources that are the proven networks of a budget. */
  readonly #names = new WeakMap<HandshakeBudget, string>();
  readonly #end: (connection: IncomingConnection) => void;
  #lastName = 0;
  /** The timer of the checks; present while a handshake is being read. */
  #looks: QueueNode<() => void> | undefined;

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
    const handshake = { connection, bytesBefore: connection.raw.bytesRead, charged: 0, readSince: 0 };
    connection.handshake = handshake;
    const source = this.#sourceOf(connection);
    if (this.#read.sizeOf(source) < READ_AT_ONCE) this.#startReading(handshake, source);
    else this.#pause(handshake, source);
    this.#looks ??= SharedInterval.every(SLICE_MS).add(() => this.#look());
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
    if (budget.isProven === true) this.#wasted.charge({ network, budget }, WASTE.burst);
  }

  stop(): void {
    this.#looks?.leave();
  }

  #sourceOf({ network, budget }: HandshakeSource): string {
    if (budget.isProven !== true) return network;
    const name = this.#names.get(budget) ?? `proven ${++this.#lastName}`;
    this.#names.set(budget, name);
    return name;
  }

  #startReading(handshake: HandshakeInProgress, source: string): void {
    handshake.readSince = performance.now();
    this.#read.add(handshake, source);
  }

  #pause(handshake: HandshakeInProgress, source: string): void {
    setReading(handshake.connection.raw, false);
    this.#paused.add(handshake, source);
  }

  #resume(handshake: HandshakeInProgress, source: string): void {
    this.#paused.delete(handshake);
    setReading(handshake.connection.raw, true);
    this.#startReading(handshake, source);
  }

  #forget(connection: IncomingConnection): HandshakeInProgress | undefined {
    const { handshake } = connection;
    if (handshake === undefined) return undefined;
    connection.handshake = undefined;
    const source = this.#sourceOf(connection);
    if (this.#read.delete(handshake)) {
      const next = this.#paused.oldestOf(source);
      if (next !== undefined) this.#resume(next, source);
    } else if (this.#paused.delete(handshake)) setReading(connection.raw, true);
    return handshake;
  }

  /** Counts the new bytes of a handshake. Returns whether its source owes bytes now. */
  #charge(handshake: HandshakeInProgress): boolean {
    const { connection, bytesBefore, charged } = handshake;
    handshake.charged = connection.raw.bytesRead - bytesBefore;
    return handshake.charged > charged && this.#wasted.charge(connection, handshake.charged - charged);
  }

  readonly #look = (): void => {
    let isOwed = false;
    for (const handshake of this.#read) if (this.#charge(handshake)) isOwed = true;
    if (isOwed) this.#endIndebted();
    this.#passOn();
    if (this.#read.size > 0) return;
    this.#looks?.leave();
    this.#looks = undefined;
  };

  /** Pauses handshakes that were read for `SLICE_MS` while others of their source wait, and reads those. */
  #passOn(): void {
    const now = performance.now();
    for (const handshake of this.#paused) {
      const source = this.#sourceOf(handshake.connection);
      const oldest = this.#read.oldestOf(source);
      if (oldest === undefined || now - oldest.readSince < SLICE_MS) continue;
      this.#read.delete(oldest);
      this.#pause(oldest, source);
      this.#resume(handshake, source);
    }
  }

  #endIndebted(): void {
    for (const { connection } of [...this.#read, ...this.#paused]) {
      if (!this.#wasted.owes(connection)) continue;
      this.#forget(connection);
      this.#end(connection);
    }
  }
}
