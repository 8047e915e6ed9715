import type { CarrierLost } from "./carrier-end.ts";
import type { ControlMessage } from "./control.ts";
import type { LinkPool } from "./outgoing.ts";

export interface LinkOptions {
  /** How long a link waits for a new carrier, ms; 0: it ends with its carrier. */
  readonly graceMs: number;
  /** How long the peer may take to notice that a carrier has fallen silent, ms. */
  readonly silenceMs?: number;
  /** Bytes kept for a new carrier, and so the most that may be unacknowledged. */
  readonly replayBytes: number;
  /** Absent: only `replayBytes` bounds what is kept. */
  readonly pool?: LinkPool;
}

/** Events of a link, beside those of the consumer of its bytes. */
export interface LinkWatcher {
  /** Control messages for the owner of the link: drain, rotate. */
  onControl?(message: ControlMessage): void;
  /** The carrier is lost; a new one may be given with `resume` or `offer` within `graceMs`. */
  onSuspended?(cause: CarrierLost): void;
  onResumed?(report: ResumeReport): void;
  /** The link is over and takes no carrier any more. */
  onClosed?(): void;
}

export interface ResumeReport {
  /** How long there was no carrier, ms; 0: the old one was still alive. */
  readonly suspendedMs: number;
  /** How the old carrier was lost; `undefined`: it was still alive. */
  readonly lost: CarrierLost | undefined;
  /** Bytes that are sent once more. */
  readonly replayedBytes: number;
}

/** The grace was over before a new carrier came. */
export class LinkLost extends Error {
  override readonly name = "LinkLost";
  readonly graceMs: number;

  constructor(graceMs: number, cause: CarrierLost) {
    super(`no new connection came within ${graceMs / 1_000} s: ${cause.message}`, { cause });
    this.graceMs = graceMs;
  }
}
