import type { QueueNode } from "../basics/queue.ts";
import { SharedInterval } from "../basics/timers.ts";
import { type Expiring, expirySentence, type LifeStage, lifeStageOf } from "./expiry.ts";

export interface ValidityLogSink {
  warn(fields: object, message: string): void;
  error(fields: object, message: string): void;
}

/** How often it is looked whether something has come near its end in use, ms. */
const LOOK_MS = 60_000;

/**
 * Tells once that a certificate, CA or token is of no use for its dates, and twice before its end: 30 and 7 days, or less
 * where it does not live for long.
 */
export class ValidityLog {
  readonly #place: QueueNode<() => void>;
  readonly #log: ValidityLogSink;
  readonly #inUse: () => Iterable<Expiring>;
  #told = new Set<string>();

  /** `inUse`: what is in use now; it looks at that until it is closed. */
  constructor(log: ValidityLogSink, inUse: () => Iterable<Expiring>) {
    this.#log = log;
    this.#inUse = inUse;
    this.look();
    this.#place = SharedInterval.every(LOOK_MS).add(this.look);
  }

  close(): void {
    this.#place.leave();
  }

  /** To be called when something else may be in use. */
  readonly look = (): void => {
    const now = new Date();
    const found = new Set<string>();
    for (const expiring of this.#inUse()) {
      const stage = lifeStageOf(expiring, now);
      if (stage === undefined) continue;
      const key = `${expiring.role}\n${expirySentence(expiring, stage)}\n${expiring.content}`;
      found.add(key);
      if (!this.#told.has(key)) this.#tell(expiring, stage);
    }
    this.#told = found;
  };

  #tell(expiring: Expiring, stage: LifeStage): void {
    const { notBefore, notAfter, fields } = expiring;
    const level = stage.state === "ending" ? "warn" : "error";
    this.#log[level]({ ...fields, notBefore, notAfter }, expirySentence(expiring, stage));
  }
}
