import type { QueueNode } from "../../shared/basics/queue.ts";
import { SharedInterval } from "../../shared/basics/timers.ts";
import type { Limits } from "../clusters/document.ts";
import { RecentRefusals } from "./refusals.ts";

/** A CONNECT that is over. */
export interface FinishedConnect {
  readonly outcome: string;
  readonly bytesUp?: number | undefined;
  readonly bytesDown?: number | undefined;
}

/** Rates are means of so many seconds. */
const RATE_S = 10;
const LOOK_MS = 1_000;

/**
 * What one cluster has done so far, for whoever asks `/status`. Bytes are added up and nothing else as they pass; rates come
 * from a look each second.
 */
export class ClusterFigures {
  /** Bytes both ways, those of open connections too. */
  carried = 0;
  /** Bytes of connections that are over. */
  bytesUp = 0;
  bytesDown = 0;
  connects = 0;
  readonly outcomes = new Map<string, number>();
  /** How often each limit has turned a CONNECT away, or slowed bytes down. */
  readonly limitsHit = new Map<keyof Limits, number>();
  readonly refusals = new RecentRefusals();
  readonly #looks: { readonly connects: number; readonly carried: number }[] = [];
  readonly #place: QueueNode<() => void>;

  constructor() {
    this.#place = SharedInterval.every(LOOK_MS).add(this.look);
  }

  close(): void {
    this.#place.leave();
  }

  connectionFinished({ outcome, bytesUp = 0, bytesDown = 0 }: FinishedConnect): void {
    this.connects++;
    this.outcomes.set(outcome, (this.outcomes.get(outcome) ?? 0) + 1);
    this.bytesUp += bytesUp;
    this.bytesDown += bytesDown;
  }

  limitHit(limit: keyof Limits): void {
    this.limitsHit.set(limit, (this.limitsHit.get(limit) ?? 0) + 1);
  }

  /** Called each second. */
  readonly look = (): void => {
    this.#looks.push({ connects: this.connects, carried: this.carried });
    if (this.#looks.length > RATE_S + 1) this.#looks.shift();
  };

  /** Means of the last whole seconds. */
  get perSecond(): { readonly connects: number; readonly bytes: number } {
    const [first, last] = [this.#looks[0], this.#looks.at(-1)];
    const seconds = this.#looks.length - 1;
    if (first === undefined || last === undefined || seconds < 1) return { connects: 0, bytes: 0 };
    return {
      connects: Math.round(((last.connects - first.connects) / seconds) * 10) / 10,
      bytes: Math.round((last.carried - first.carried) / seconds),
    };
  }
}
