import { CloseCode } from "../wire/handshake.ts";
import type { Transport } from "../yamux/transport.ts";
import type { Carrier } from "./carrier.ts";

/** What a link uses of a carrier. */
export type LinkCarrier = Pick<
  Carrier,
  | Exclude<keyof Transport, "room" | "destroy">
  | "close"
  | "abandon"
  | "sendControl"
  | "onControl"
  | "probe"
  | "acknowledged"
>;

/** The offsets at which a new carrier begins. */
export interface ResumeAt {
  /** What the peer has received of the link: where we begin to send. */
  readonly peerReceived: number;
  /** What we named to the peer as received: where it begins to send. */
  readonly named: number;
}

/** A new carrier on which nothing arrives for this time is given up, ms: both ends send there at once. */
const UNCONFIRMED_MS = 5_000;

/** A carrier, and how far the payload that arrives on it has come in the link. */
export class CarrierCursor {
  readonly carrier: LinkCarrier;
  /** The offset of the next byte that arrives. */
  #arriving: number;
  /** The carrier before it, until the peer is known to use this one. */
  #previous: LinkCarrier | undefined;

  /** The first carrier of a link. */
  static first(carrier: LinkCarrier): CarrierCursor {
    return new CarrierCursor(carrier, 0);
  }

  /** A later carrier of a link. */
  static resumed(carrier: LinkCarrier, { named }: ResumeAt): CarrierCursor {
    carrier.probe(UNCONFIRMED_MS);
    return new CarrierCursor(carrier, named);
  }

  private constructor(carrier: LinkCarrier, arriving: number) {
    this.carrier = carrier;
    this.#arriving = arriving;
  }

  /** It takes over from a carrier that may still be alive. */
  follow(before: CarrierCursor): void {
    before.closePrevious();
    this.#previous = before.carrier;
  }

  /** The part of this payload that begins at `received`, or `undefined` if the link has all of it. */
  newIn(piece: Buffer, received: number): Buffer | undefined {
    const had = received - this.#arriving;
    this.#arriving += piece.length;
    if (had >= piece.length) return undefined;
    return had === 0 ? piece : piece.subarray(had);
  }

  /** Closes the carrier before it, so that the peer does not go on there. */
  closePrevious(): void {
    if (this.#previous !== undefined) supersede(this.#previous);
    this.#previous = undefined;
  }

  abandon(code: number, sentence: string): void {
    this.carrier.abandon(code, sentence);
    this.#previous?.abandon(code, sentence);
  }
}

/** Closes a carrier in whose place another one carries the link. */
export function supersede(carrier: LinkCarrier): void {
  carrier.close(CloseCode.superseded, "another connection has taken the link over");
}

/** A carrier that takes over with the peer's first message on it. Until then the present one goes on. */
export interface Successor {
  readonly cursor: CarrierCursor;
  readonly remote: string;
  readonly peerReceived: number;
}

/** So many bytes are acknowledged at once, fewer with the next write. */
const ACK_BYTES = 64 * 1024;
/** Acknowledgements are at least so far apart: each is a TLS record, a system call and a wake-up of the peer. */
const ACK_GAP_MS = 5;
/** Without a write to go with, fewer bytes are acknowledged after this time. */
const ACK_WAIT_MS = 10;

/**
 * Decides when to acknowledge what a link has received (docs/link-protocol.md). Acknowledgements go with what is
 * written anyway, if they can.
 */
export class Acks {
  readonly #send: (received: number) => void;
  readonly #clock: () => number;
  #received = 0;
  #acked = 0;
  #held = false;
  #sentAt = Number.NEGATIVE_INFINITY;
  /** 64 KiB wait until the last acknowledgement is 5 ms old. */
  #gapTimer: NodeJS.Timeout | undefined;
  #waitTimer: NodeJS.Timeout | undefined;

  constructor(send: (received: number) => void, clock: () => number = () => performance.now()) {
    this.#send = send;
    this.#clock = clock;
  }

  /** All payload before this offset has arrived. */
  get received(): number {
    return this.#received;
  }

  arrived(bytes: number): void {
    this.#received += bytes;
    this.#waitTimer ??= setTimeout(this.#onWaited, ACK_WAIT_MS).unref();
    if (this.#received - this.#acked >= ACK_BYTES && this.#gapTimer === undefined) this.#hurry();
  }

  /** Something is about to be written, with which an acknowledgement can go. */
  ride(): void {
    if (this.#received > this.#acked && this.#clock() - this.#sentAt >= ACK_GAP_MS) this.now();
  }

  /** Acknowledges now, even if nothing has arrived: the peer waits for a first message on a new carrier. */
  now(): void {
    if (this.#held) return;
    this.#acked = this.#received;
    this.#sentAt = this.#clock();
    this.#stopTimers();
    this.#send(this.#received);
  }

  /** Acknowledges nothing until `release`, because a hello or its answer has named an offset as the highest. */
  hold(): void {
    this.#held = true;
  }

  release(): void {
    this.#held = false;
    if (this.#received > this.#acked) this.#waitTimer ??= setTimeout(this.#onWaited, ACK_WAIT_MS).unref();
  }

  stop(): void {
    this.#held = true;
    this.#stopTimers();
  }

  #stopTimers(): void {
    clearTimeout(this.#gapTimer);
    this.#gapTimer = undefined;
    clearTimeout(this.#waitTimer);
    this.#waitTimer = undefined;
  }

  readonly #onWaited = (): void => {
    this.#waitTimer = undefined;
    this.now();
  };

  #hurry(): void {
    const leftMs = Math.ceil(this.#sentAt + ACK_GAP_MS - this.#clock());
    if (leftMs > 0) this.#gapTimer = setTimeout(this.#onGap, leftMs).unref();
    else this.now();
  }

  readonly #onGap = (): void => {
    this.#gapTimer = undefined;
    this.now();
  };
}
