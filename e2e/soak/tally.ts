/** Faults that are kept in words; all are counted. */
const KEPT_FAULTS = 20;

/** Counts of the traffic so far, and of its faults. */
export class Tally {
  /** CONNECTs made. */
  connections = 0;
  /** Bytes that arrived and were those that had been sent. */
  bytes = 0;
  /** Connections that were reset on purpose, by the caller or the target. */
  resets = 0;
  /** Callers that stopped reading. */
  stalled = 0;
  /** Certificates and documents that were replaced. */
  changes = 0;
  /** Connections of each kind that came to their end as they should. */
  readonly ended = new Map<string, number>();
  readonly faults: string[] = [];
  faultCount = 0;
  readonly #onFault: (text: string) => void;

  /** `onFault` is for those that are kept. */
  constructor(onFault: (text: string) => void = () => {}) {
    this.#onFault = onFault;
  }

  endedWell(kind: string): void {
    this.ended.set(kind, (this.ended.get(kind) ?? 0) + 1);
  }

  fault(text: string): void {
    this.faultCount++;
    if (this.faults.length >= KEPT_FAULTS) return;
    this.faults.push(text);
    this.#onFault(text);
  }
}
