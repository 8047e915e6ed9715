import { type QueueNode, RecentMap } from "../../shared/basics/collections.ts";
import { SharedInterval } from "../../shared/basics/timers.ts";
import { type CredentialFault, printable } from "../../shared/outcomes.ts";
import type { Limits } from "../clusters/document.ts";

/** A CONNECT that has ended. */
export interface FinishedConnect {
  readonly outcome: string;
  readonly bytesUp?: number | undefined;
  readonly bytesDown?: number | undefined;
}

/** Rates are means over this number of seconds. */
const RATE_S = 10;
const SAMPLE_MS = 1_000;

/**
 * The figures of one cluster for `/status`. The hot path only adds up bytes; rates come from a sample each second.
 */
export class ClusterFigures {
  /** Bytes of both directions, also of open connections. */
  carried = 0;
  /** Bytes of connections that have ended. */
  bytesUp = 0;
  bytesDown = 0;
  connects = 0;
  readonly outcomes = new Map<string, number>();
  /** How often each limit has refused a CONNECT, or slowed bytes down. */
  readonly limitsHit = new Map<keyof Limits, number>();
  readonly refusals = new RecentRefusals();
  readonly #samples: { readonly connects: number; readonly carried: number }[] = [];
  readonly #place: QueueNode<() => void>;

  constructor() {
    this.#place = SharedInterval.every(SAMPLE_MS).add(this.look);
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
    this.#samples.push({ connects: this.connects, carried: this.carried });
    if (this.#samples.length > RATE_S + 1) this.#samples.shift();
  };

  /** Means of the last whole seconds. */
  get perSecond(): { readonly connects: number; readonly bytes: number } {
    const [first, last] = [this.#samples[0], this.#samples.at(-1)];
    const seconds = this.#samples.length - 1;
    if (first === undefined || last === undefined || seconds < 1) return { connects: 0, bytes: 0 };
    return {
      connects: Math.round(((last.connects - first.connects) / seconds) * 10) / 10,
      bytes: Math.round((last.carried - first.carried) / seconds),
    };
  }
}

/** A refused peer, in words for an operator. */
export interface RefusedPeer {
  readonly side: "caller" | "agent";
  /** The outcome of a caller; the HTTP status or close code of an agent. */
  readonly code: string;
  /** The name or address of the peer, as far as it is known. */
  readonly from: string;
  readonly target?: string | undefined;
  readonly reason: string;
  /** Subject, issuer and serial number of the certificate that it has shown, if that was not accepted. */
  readonly certificate?: string | undefined;
  readonly fault?: CredentialFault | undefined;
}

export interface RefusedPeerCount extends RefusedPeer {
  /** When it happened last, and how often so far. */
  readonly at: string;
  readonly times: number;
}

/** Number of refusals that are kept: they show what is wrong now, and are no log. */
const KEPT = 10;

/** The last different refusals of a cluster: a peer that retries counts as one of them. */
export class RecentRefusals {
  /** Called with each one. */
  onAdded = (): void => {};
  readonly #last = new RecentMap<string, RefusedPeerCount>(KEPT);

  add({ side, code, from, target, reason, certificate, fault }: RefusedPeer, now = new Date()): void {
    const shown = {
      side,
      code,
      from: printable(from, 120),
      reason: printable(reason),
      ...(target && { target: printable(target, 120) }),
      ...(certificate && { certificate }),
      ...(fault && { fault }),
    };
    const key = JSON.stringify(shown);
    const times = (this.#last.get(key)?.times ?? 0) + 1;
    this.#last.set(key, { ...shown, at: now.toISOString(), times });
    this.onAdded();
  }

  /** The newest first. */
  list(): RefusedPeerCount[] {
    return [...this.#last.values()].reverse();
  }
}

/** Facts about the clusters that are served. */
export interface LiveClusters {
  /** `undefined` for a cluster that is not served any more. */
  readonly figuresOf: (cluster: string) => ClusterFigures | undefined;
  /** Why some clusters are not served as their documents say. */
  readonly faults: () => readonly unknown[];
  /** The states of the API servers that verify tokens. */
  readonly tokenReviews: () => readonly { readonly cluster: string; readonly reach: { readonly state: string } }[];
}
