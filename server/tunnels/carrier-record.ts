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

/** The carriers that the link of a tunnel has had so far, for operators. */
export class CarrierRecord {
  /** When the present carrier took over; while there is none, when the last one did. */
  since = new Date();
  /** Present while there is no carrier. */
  lostAt: Date | undefined;
  /** Carriers after the first: a lost one was replaced, or the link has moved. */
  resumes = 0;
  losses = 0;
  lastLoss: CarrierLoss | undefined;

  onLost({ lossCause, message, ageMs, idleMs }: CarrierLost): void {
    const at = new Date();
    this.lostAt = at;
    this.losses++;
    const times = { ageMs: Math.round(ageMs), idleMs: Math.round(idleMs) };
    this.lastLoss = { at, cause: lossCause, reason: printable(message), ...times };
  }

  onResumed(): void {
    this.since = new Date();
    this.lostAt = undefined;
    this.resumes++;
  }
}
