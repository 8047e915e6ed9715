interface FilesOf<T> {
  /** Throws a sentence where the files cannot be used. `valid`: what was read before, as long as it is valid. */
  read(valid: T | undefined): T;
  endOf(held: T): Date | undefined;
  /** Called once for each reason. */
  onUnusable(reason: string, isOldValid: boolean): void;
}

/**
 * The contents of files, read anew each time. If they cannot be used, the contents before stay in use while they are
 * valid.
 */
export class KeptFiles<T> {
  readonly #files: FilesOf<T>;
  #held: T | undefined;
  #fault: Error | undefined;

  constructor(files: FilesOf<T>) {
    this.#files = files;
  }

  /** Throws what `read` has thrown when the files cannot be used and nothing valid was read before. */
  current(): T {
    if (this.refresh()) return this.#held as T;
    const valid = this.#valid;
    if (valid === undefined) throw this.#fault;
    return valid;
  }

  /** The newest contents that could be used. */
  get held(): T | undefined {
    return this.#held;
  }

  /** Why the files as they are now cannot be used, if they cannot. */
  get problem(): string | undefined {
    return this.#fault?.message;
  }

  /** Reads the files, and returns whether they can be used. */
  refresh(): boolean {
    const valid = this.#valid;
    try {
      this.#held = this.#files.read(valid);
      this.#fault = undefined;
      return true;
    } catch (error) {
      const { message } = error as Error;
      const isNew = this.#held !== undefined && message !== this.#fault?.message;
      if (isNew) this.#files.onUnusable(message, valid !== undefined);
      this.#fault = error as Error;
      return false;
    }
  }

  get #valid(): T | undefined {
    if (this.#held === undefined) return undefined;
    const end = this.#files.endOf(this.#held);
    return end === undefined || end > new Date() ? this.#held : undefined;
  }
}
