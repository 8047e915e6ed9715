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
