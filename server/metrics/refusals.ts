import { printable } from "../../shared/outcomes.ts";

/** Somebody who was sent away, in words for an operator. */
export interface RefusedPeer {
  readonly side: "caller" | "agent";
  /** An outcome; of an agent the HTTP status or the close code that it got. */
  readonly code: string;
  /** Who it was, as far as that is known. */
  readonly from: string;
  readonly target?: string | undefined;
  readonly reason: string;
}

export interface RefusedPeerCount extends RefusedPeer {
  /** When it was told last, and how often so far. */
  readonly at: string;
  readonly times: number;
}

/** What is wrong now, not a log. */
const KEPT = 10;

/** The last refusals of a cluster that differ: who tries again and again is one of them. */
export class RecentRefusals {
  readonly #last = new Map<string, RefusedPeerCount>();

  tell({ side, code, from, target, reason }: RefusedPeer, now = new Date()): void {
    const shown = {
      ...{ side, code, from: printable(from, 120), reason: printable(reason) },
      ...(target && { target: printable(target, 120) }),
    };
    const key = JSON.stringify(shown);
    const times = (this.#last.get(key)?.times ?? 0) + 1;
    this.#last.delete(key); // what is told last stands last
    this.#last.set(key, { ...shown, at: now.toISOString(), times });
    const [oldest] = this.#last.keys();
    if (this.#last.size > KEPT && oldest !== undefined) this.#last.delete(oldest);
  }

  /** The newest first. */
  list(): RefusedPeerCount[] {
    return [...this.#last.values()].reverse();
  }
}
