/** Links that are remembered. Any peer may name link ids, so the oldest is forgotten. */
const MAX_LINKS = 1_024;

/**
 * The resumes that were refused. An agent whose server was killed asks for its old link until the link's grace is over,
 * several times a minute, and the answer stays the same: only the first refusal of a link is worth a warning.
 */
export class RefusedResumes {
  readonly #codes = new Map<string, number>();

  /** Whether this link was not refused with this close code the last time. */
  isNew(link: string, code: number): boolean {
    const isNew = this.#codes.get(link) !== code;
    this.#codes.delete(link); // to the end: the one that was asked for longest ago is forgotten first
    this.#codes.set(link, code);
    const [oldest] = this.#codes.keys();
    if (this.#codes.size > MAX_LINKS && oldest !== undefined) this.#codes.delete(oldest);
    return isNew;
  }
}
