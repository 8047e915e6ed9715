import assert from "node:assert/strict";
import { percentile } from "../../bench/stats.ts";
import { type Connection, established } from "../../harness/caller.ts";

const EVERY_MS = 200;
const PATIENCE_MS = 30_000;

/** One review, as kube-apiserver asks a webhook for it: a connection of its own, a question, the answer, the end. */
export async function review(connecting: Promise<Connection>, cluster: string, question: string): Promise<void> {
  await using connection = await established(connecting);
  await connection.send(`${question}\n`);
  assert.equal(await connection.readAll(PATIENCE_MS), `${cluster} allows ${question}\n`);
}

/** Asks for a review each 200 ms, whether or not the last one has been answered. */
export class WebhookCalls implements AsyncDisposable {
  readonly failures: string[] = [];
  readonly #times: number[] = [];
  readonly #pending = new Set<Promise<void>>();
  readonly #timer: NodeJS.Timeout;
  #made = 0;

  constructor(name: string, call: (question: string) => Promise<void>) {
    const one = async () => {
      const begun = performance.now();
      const question = `${name} ${++this.#made}`;
      try {
        await call(question);
      } catch (error) {
        this.failures.push(
          `${question}, after ${Math.round(performance.now() - begun)} ms: ${(error as Error).message}`,
        );
      }
      this.#times.push(performance.now() - begun);
    };
    this.#timer = setInterval(() => {
      const pending = one().finally(() => this.#pending.delete(pending));
      this.#pending.add(pending);
    }, EVERY_MS);
  }

  /** How many calls have begun. */
  get made(): number {
    return this.#made;
  }

  /** No more calls; resolves when the last one has its answer. */
  async finish(): Promise<{ readonly calls: number; readonly slowestMs: number; readonly p99Ms: number }> {
    clearInterval(this.#timer);
    await Promise.all(this.#pending);
    return { calls: this.#made, slowestMs: Math.max(...this.#times), p99Ms: percentile(this.#times, 99) };
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.finish();
  }
}
