/** A reason that comes again so soon is none, ms. */
const SAME_AGAIN_MS = 10_000;

/** What is worth a line: attempts come several times a second at first, and fail for one and the same reason. */
export class News {
  #told: { readonly reason: string; readonly atMs: number } | undefined;

  isNew(reason: string): boolean {
    const atMs = performance.now();
    if (reason === this.#told?.reason && atMs - this.#told.atMs < SAME_AGAIN_MS) return false;
    this.#told = { reason, atMs };
    return true;
  }

  /** Whatever comes next is. */
  forget(): void {
    this.#told = undefined;
  }
}
