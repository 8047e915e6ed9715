import { CloseCode } from "../wire/handshake.ts";
import type { Transport } from "../yamux/transport.ts";
import type { Carrier } from "./carrier.ts";

/** What a link asks of a carrier. */
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

/** Where a new carrier begins. */
export interface ResumeAt {
  /** What its peer has of the link: where we begin. */
  readonly peerReceived: number;
  /** What we have told the peer that we have: where it begins. */
  readonly named: number;
}

/** Where the first carrier of a link begins. */
export const AT_FIRST: ResumeAt = { peerReceived: 0, named: 0 };

/** A carrier, and how far the payload on it has come in the link. */
export class Leg {
  readonly carrier: LinkCarrier;
  /** The offset of the next byte that arrives on it. */
  #arriving: number;
  /** The carrier before it, until the peer is known to have this one. */
  #previous: LinkCarrier | undefined;

  constructor(carrier: LinkCarrier, { named }: ResumeAt) {
    this.carrier = carrier;
    this.#arriving = named;
  }

  /** It has taken over from a carrier that may still be alive. */
  follow(before: Leg): void {
    before.closePrevious();
    this.#previous = before.carrier;
  }

  /** A message has come on it. */
  hear(): void {
    this.closePrevious();
  }

  /** What of this payload lies behind `received`. */
  newsIn(piece: Buffer, received: number): Buffer | undefined {
    const had = received - this.#arriving;
    this.#arriving += piece.length;
    if (had >= piece.length) return undefined;
    return had === 0 ? piece : piece.subarray(had);
  }

  /** Its peer must not go on believing in what was before it. */
  closePrevious(): void {
    this.#previous?.close(CloseCode.superseded, SUPERSEDED);
    this.#previous = undefined;
  }

  abandon(code: number, sentence: string): void {
    this.carrier.abandon(code, sentence);
    this.#previous?.abandon(code, sentence);
  }
}

/** A carrier that is to take over when its peer is known to have it: until then the present one goes on. */
export interface Successor {
  readonly leg: Leg;
  readonly remote: string;
  readonly peerReceived: number;
}

export const SUPERSEDED = "another connection has taken the link over";
