/** More processes than these with one agent id take turns: the one that was heard of longest ago is forgotten. */
const KEPT = 64;

/**
 * The processes that have held an agent id before its present one, by `instance`. Most have ended: the agent has been
 * restarted. One that asks again has not: somebody runs two agents with one id.
 */
export class OtherProcesses {
  readonly #isRunning: Map<string, boolean>;

  /** `before`: what the holder before has heard. */
  constructor(before?: OtherProcesses) {
    this.#isRunning = new Map(before === undefined ? [] : before.#isRunning);
  }

  has(instance: string): boolean {
    return this.#isRunning.has(instance);
  }

  /** It has been heard of beside its successor. */
  isRunning(instance: string): boolean {
    return this.#isRunning.get(instance) === true;
  }

  note(instance: string, isRunning: boolean): void {
    this.#isRunning.delete(instance); // who is noted last stands last
    this.#isRunning.set(instance, isRunning);
    const [oldest] = this.#isRunning.keys();
    if (this.#isRunning.size > KEPT && oldest !== undefined) this.#isRunning.delete(oldest);
  }

  /** It holds the id again. */
  forget(instance: string): void {
    this.#isRunning.delete(instance);
  }
}
