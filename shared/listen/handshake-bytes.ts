import type { Socket } from "node:net";
import { TokenBuckets } from "../basics/rate-limit.ts";
import { SharedInterval } from "../basics/timers.ts";

/** Bytes that a client may send in its handshake and that nobody counts: a certificate and an intermediate one. */
const FREE_BYTES = 4 * 1024;
/** Bytes beyond those that a network may send in handshakes whose certificate is not accepted. */
const BYTES = { burst: 32 * 1024, perSecond: 4 * 1024 };
const LOOK_MS = 50;

/** A handshake in progress. */
interface Handshake {
  readonly raw: Socket;
  readonly network: string;
  /** What had come when it began. */
  readonly bytesBefore: number;
  charged: number;
  readonly onClose: () => void;
  onFlood(): void;
}

/**
 * Finds networks whose clients send long chains of certificates that are not accepted. OpenSSL verifies each signature
 * in a chain before it says that its CA is not known, up to 100 KiB of them and in one turn of the event loop; that of
 * a key made for it takes 8 ms, and whoever sends the chain computes nothing. Node has no bound for it, and the
 * messages are encrypted, so bytes are counted.
 */
export class HandshakeBytes {
  readonly #buckets = new TokenBuckets(BYTES);
  readonly #begun = new Map<Socket, Handshake>();
  readonly #place = SharedInterval.every(LOOK_MS).add(() => {
    for (const handshake of this.#begun.values()) this.#charge(handshake);
  });

  /** Watches a handshake that begins, until `leave` or its connection's close. `onFlood` is called at most once. */
  watch(raw: Socket, network: string, onFlood: () => void): void {
    const onClose = (): void => this.leave(raw, () => false);
    this.#begun.set(raw, { raw, network, bytesBefore: raw.bytesRead, charged: 0, onClose, onFlood });
    raw.prependOnceListener("close", onClose); // before its end is reported as another failure
  }

  /** Its handshake is over. `isHarmless` is asked only if it was long. */
  leave(raw: Socket, isHarmless: () => boolean): void {
    const handshake = this.#forget(raw);
    if (handshake === undefined || excessOf(handshake) === 0) return;
    if (isHarmless()) this.#buckets.charge(handshake.network, -handshake.charged);
    else this.#charge(handshake);
  }

  stop(): void {
    this.#place.leave();
    this.#begun.clear();
  }

  #charge(handshake: Handshake): void {
    const more = excessOf(handshake) - handshake.charged;
    if (more <= 0) return;
    handshake.charged += more;
    if (this.#buckets.charge(handshake.network, more) === 0) return;
    this.#forget(handshake.raw);
    handshake.onFlood();
  }

  #forget(raw: Socket): Handshake | undefined {
    const handshake = this.#begun.get(raw);
    if (handshake === undefined) return undefined;
    this.#begun.delete(raw);
    raw.off("close", handshake.onClose);
    return handshake;
  }
}

function excessOf({ raw, bytesBefore }: Handshake): number {
  return Math.max(0, raw.bytesRead - bytesBefore - FREE_BYTES);
}
