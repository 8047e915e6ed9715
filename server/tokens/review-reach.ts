import type { QueueNode } from "../../shared/basics/queue.ts";
import { SharedInterval } from "../../shared/basics/timers.ts";

/** Whether the API server that judges tokens can be asked. */
export type Reach =
  /** No question has been answered or given up yet. */
  | { readonly state: "untried" }
  | { readonly state: "answers" }
  /** `fault`: a sentence for operators, with addresses. `hasAnswered`: it did, since the start. */
  | { readonly state: "failing"; readonly fault: string; readonly hasAnswered: boolean };

/** How often it is looked whether a question is due, ms. */
const LOOK_MS = 10_000;
/** Where nobody's token was asked about for so long, ms, the API server is asked about one that is none. */
const QUIET_MS = 60_000;

/**
 * What is known of the way to an API server: what came of the last question. Agents ask most of them; where none comes, one
 * is asked each minute, or every 10 s while it fails, so that the fault is known before an agent has met it.
 */
export class ReviewReach {
  readonly #ask: () => void;
  readonly #onChanged: (reach: Reach) => void;
  readonly #place: QueueNode<() => void>;
  #reach: Reach = { state: "untried" };
  #askedAtMs = 0;

  /** `ask`: puts a question, the outcome of which comes back by `answered` or `failed`. */
  constructor(ask: () => void, onChanged: (reach: Reach) => void) {
    this.#ask = ask;
    this.#onChanged = onChanged;
    this.#place = SharedInterval.every(LOOK_MS).add(() => this.#look());
    this.#put();
  }

  get now(): Reach {
    return this.#reach;
  }

  answered(): void {
    this.#askedAtMs = performance.now();
    if (this.#reach.state !== "answers") this.#change({ state: "answers" });
  }

  failed(fault: string): void {
    this.#askedAtMs = performance.now();
    const before = this.#reach;
    const hasAnswered = before.state === "answers" || (before.state === "failing" && before.hasAnswered);
    if (before.state !== "failing" || before.fault !== fault) this.#change({ state: "failing", fault, hasAnswered });
  }

  close(): void {
    this.#place.leave();
  }

  #look(): void {
    const isQuiet = performance.now() - this.#askedAtMs >= QUIET_MS;
    if (this.#reach.state === "failing" || isQuiet) this.#put();
  }

  #put(): void {
    this.#askedAtMs = performance.now();
    this.#ask();
  }

  #change(reach: Reach): void {
    this.#reach = reach;
    this.#onChanged(reach);
  }
}
