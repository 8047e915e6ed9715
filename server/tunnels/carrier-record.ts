import type { CarrierLost, LossCause } from "../../shared/link/link-events.ts";
import { printable } from "../../shared/outcomes.ts";

/** How a carrier was lost. */
interface CarrierLoss {
  readonly at: Date;
  readonly cause: LossCause;
  /** A sentence. */
  readonly reason: string;
  /** How long the carrier had lived, and how long no byte had come before its end, ms. */
  readonly ageMs: number;
  readonly idleMs: number;
}

/** A carrier that lasts a shorter time is cut, or replaced before it would be cut, ms. */
const SHORT_MS = 3 * 60_000;
/** So many of them in a row are no accident. */
const OFTEN = 2;

/** The carriers that the link of a tunnel has had so far, for operators. */
export class CarrierRecord {
  /** When the present carrier took over; while there is none, when the last one did. */
  since = new Date();
  /** Present while there is no carrier. */
  lostAt: Date | undefined;
  /** Carriers after the first: a lost one was replaced, or the link has moved. */
  resumes = 0;
  losses = 0;
  /** How many of the last ones have lasted a short time, one after the other. */
  #short = 0;
  lastLoss: CarrierLoss | undefined;

  onLost({ lossCause, message, ageMs, idleMs }: CarrierLost): void {
    const at = new Date();
    this.lostAt = at;
    this.losses++;
    const times = { ageMs: Math.round(ageMs), idleMs: Math.round(idleMs) };
    this.lastLoss = { at, cause: lossCause, reason: printable(message), ...times };
  }

  /** A link that is cut each minute is up whenever somebody looks. */
  get isCutOften(): boolean {
    return this.#short >= OFTEN && Date.now() - this.since.getTime() < SHORT_MS;
  }

  onResumed(): void {
    this.#short = Date.now() - this.since.getTime() < SHORT_MS ? this.#short + 1 : 0;
    this.since = new Date();
    this.lostAt = undefined;
    this.resumes++;
  }
}
