import { untilAborted } from "../basics/promises.ts";
import { readBounded } from "../documents/read-bounded.ts";

/** A file that somebody has named, and that may be anything: a pipe, a device, on a disk of a server that is gone. */
export class BoundedFile {
  readonly path: string;
  readonly #maxBytes: number;
  readonly #load: (path: string, maxBytes: number) => Promise<Buffer>;
  #underWay: Promise<Buffer> | undefined;

  constructor(path: string, maxBytes: number, load: (path: string, maxBytes: number) => Promise<Buffer> = readBounded) {
    this.path = path;
    this.#maxBytes = maxBytes;
    this.#load = load;
  }

  /**
   * Its content; rejects as `readBounded` does. A read cannot be stopped and holds a thread of libuv's few:
   * who comes while one is under way waits for that one. Rejects with the signal's reason when that is aborted.
   */
  read(signal: AbortSignal): Promise<Buffer> {
    this.#underWay ??= this.#load(this.path, this.#maxBytes).finally(() => {
      this.#underWay = undefined;
    });
    return untilAborted(this.#underWay, signal);
  }
}
