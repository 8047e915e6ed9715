import type { Stats } from "node:fs";
import { stat } from "node:fs/promises";

/** A disk that does not answer keeps nobody from a proxy for longer. */
const TIMEOUT_MS = 1_000;

/** What tells one content of a file from another, without a look into it. It may lie on a disk of a server that is gone. */
export class FileVersion {
  readonly #path: string;
  readonly #load: (path: string) => Promise<Pick<Stats, "ino" | "size" | "mtimeMs">>;
  #underWay: Promise<void> | undefined;
  #last = "";

  constructor(path: string, load: (path: string) => Promise<Pick<Stats, "ino" | "size" | "mtimeMs">> = stat) {
    this.#path = path;
    this.#load = load;
  }

  /**
   * A file that is not there, or may not be read, has a version like any other; that of a disk which does not answer is
   * the last that was seen. The question cannot be taken back and holds a thread of libuv's few: it is asked once.
   */
  async read(): Promise<string> {
    this.#underWay ??= this.#ask().finally(() => {
      this.#underWay = undefined;
    });
    let timer: NodeJS.Timeout | undefined;
    const late = new Promise<void>((resolve) => {
      timer = setTimeout(resolve, TIMEOUT_MS);
    });
    await Promise.race([this.#underWay, late]);
    clearTimeout(timer);
    return this.#last;
  }

  async #ask(): Promise<void> {
    try {
      const { ino, size, mtimeMs } = await this.#load(this.#path);
      this.#last = `${ino} ${size} ${mtimeMs}`;
    } catch (error) {
      this.#last = String((error as NodeJS.ErrnoException).code);
    }
  }
}
