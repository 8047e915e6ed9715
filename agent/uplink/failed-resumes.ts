/** Reasons that are remembered: a stranger may find ever new words. */
const MAX_REASONS = 16;

/** The tries to give a link another carrier that have failed since it got the last one. */
export class FailedResumes {
  /** Nobody listened where somebody does now: a server, a balancer or a proxy was restarted. */
  metNobody = false;
  readonly #reasons = new Set<string>();
  #count = 0;

  get count(): number {
    return this.#count;
  }

  /** Is that worth a line? Tries come more than once a second, and go from one server to another and back. */
  isNews(reason: string): boolean {
    this.#count++;
    if (this.#reasons.has(reason) || this.#reasons.size >= MAX_REASONS) return false;
    this.#reasons.add(reason);
    return true;
  }
}
