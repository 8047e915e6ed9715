import { createHash } from "node:crypto";
import { type FileLog, FileWatcher, type Suspects, type WatchTiming } from "./file-watcher.ts";
import { readBounded, readBoundedSync, readFailure } from "./read-bounded.ts";

export interface WatchedFilesOptions<T> {
  readonly log: FileLog;
  /** Called when new content is in use. Clients that came earlier were verified by the content `before`. */
  onRenewed?(content: T, before: T): void;
  readonly watch?: Partial<WatchTiming>;
}

export interface WatchedFilesSource<T> {
  /** The files that `load` reads. The log names the first, unless `fileAtFault` names another one. */
  readonly paths: readonly [string, ...string[]];
  /** Throws an error whose message is a sentence with a path. */
  load(): T;
  /** Log messages. */
  readonly renewed: string;
  readonly unusable: string;
  /** The file because of which `load` has thrown this error. */
  fileAtFault?(error: unknown): string | undefined;
  /** More fields of the message `renewed`. */
  fields?(content: T): object;
}

/** The content of some files. While their new content cannot be used, the last one stays in use. */
export class WatchedFiles<T> {
  readonly #source: WatchedFilesSource<T>;
  readonly #options: WatchedFilesOptions<T>;
  readonly #watch: ContentWatch;
  #content: T;
  #problem: string | undefined;

  /** Throws what `load` throws. */
  constructor(source: WatchedFilesSource<T>, options: WatchedFilesOptions<T>) {
    this.#source = source;
    this.#options = options;
    this.#watch = watchFiles(source.paths, this.#onChanged, options.watch); // before the first read, to miss no change
    try {
      this.#content = source.load();
    } catch (error) {
      this.#watch.close();
      throw error;
    }
  }

  /** A new object after each change. */
  get content(): T {
    return this.#content;
  }

  /** Why the present content of the files is not in use, if it is not. */
  get problem(): string | undefined {
    return this.#problem;
  }

  close(): void {
    this.#watch.close();
  }

  readonly #onChanged = (): void => {
    const { log, onRenewed } = this.#options;
    const { paths, load, renewed, unusable, fileAtFault, fields } = this.#source;
    const [file] = paths;
    const before = this.#content;
    try {
      this.#content = load();
    } catch (error) {
      this.#problem = error instanceof Error ? error.message : String(error);
      log.error({ file: fileAtFault?.(error) ?? file, reason: this.#problem }, unusable);
      return;
    }
    this.#problem = undefined;
    log.info({ file, ...fields?.(this.#content) }, renewed);
    onRenewed?.(this.#content, before);
  };
}

export interface ContentWatch {
  /** Makes the next check call `onChange` whether or not the content has changed, because it could not be used. */
  retry(): void;
  close(): void;
}

/**
 * Calls `onChange` when the content of one of the files has changed, or one has appeared or gone. Start it before the
 * first read, so that no change is missed. It keeps no process alive.
 */
export function watchFiles(
  paths: readonly string[],
  onChange: () => void,
  timing?: Partial<WatchTiming>,
): ContentWatch {
  if (timing !== undefined) return new ContentChecks(timing, true).add(paths, onChange);
  shared ??= new ContentChecks(undefined, false);
  return shared.add(paths, onChange);
}

/**
 * Files of so many owners are read at one time. One that hangs, as on a network disk that does not answer, holds one of
 * these places, and nobody else's files.
 */
const MOST_CHECKS = 8;

/** One watcher for all files of this process: a thousand clusters may each name a key file. */
let shared: ContentChecks | undefined;

class ContentChecks {
  readonly #watcher: FileWatcher;
  readonly #checks = new Map<string, ContentCheck>();
  readonly #closesWithLast: boolean;
  /** Owners whose files are to be read, and those whose files are being read. */
  readonly #waiting = new Set<string>();
  readonly #reading = new Set<string>();
  #next = 0;

  constructor(timing: Partial<WatchTiming> | undefined, closesWithLast: boolean) {
    this.#closesWithLast = closesWithLast;
    this.#watcher = new FileWatcher(async (suspects) => this.#check(suspects), { timing });
  }

  add(paths: readonly string[], onChange: () => void): ContentWatch {
    const owner = String(this.#next++);
    const unique = [...new Set(paths)];
    this.#watcher.follow(owner, unique); // before the first read
    const check = new ContentCheck(unique, onChange);
    this.#checks.set(owner, check);
    return {
      retry: () => {
        check.retries = true;
      },
      close: () => {
        check.closed = true;
        this.#checks.delete(owner);
        this.#watcher.forget(owner);
        if (this.#closesWithLast) this.#watcher.close();
      },
    };
  }

  #check(suspects: Suspects): void {
    for (const owner of suspects === "all" ? this.#checks.keys() : suspects) this.#waiting.add(owner);
    this.#readWaiting();
  }

  #readWaiting(): void {
    for (const owner of this.#waiting) {
      if (this.#reading.size >= MOST_CHECKS) return;
      if (!this.#reading.has(owner)) void this.#read(owner);
    }
  }

  async #read(owner: string): Promise<void> {
    this.#waiting.delete(owner);
    this.#reading.add(owner);
    await this.#checks.get(owner)?.check();
    this.#reading.delete(owner);
    this.#readWaiting();
  }
}

/** The digests of some files, because there are keys among them. */
class ContentCheck {
  readonly #paths: readonly string[];
  readonly #onChange: () => void;
  #digests: readonly string[];
  /** The next check calls `onChange` whether or not the content has changed. */
  retries = false;
  closed = false;

  constructor(paths: readonly string[], onChange: () => void) {
    this.#paths = paths;
    this.#onChange = onChange;
    this.#digests = paths.map(digestNow);
  }

  async check(): Promise<void> {
    const digests = await Promise.all(this.#paths.map(digestLater));
    if (this.closed) return;
    if (!this.retries && digests.every((digest, index) => digest === this.#digests[index])) return;
    this.retries = false;
    this.#digests = digests;
    this.#onChange();
  }
}

/** The digest of the content, or why it cannot be read: another reason is a change, too. */
function digestNow(path: string): string {
  try {
    return digestOf(readBoundedSync(path));
  } catch (error) {
    return readFailure(error);
  }
}

async function digestLater(path: string): Promise<string> {
  try {
    return digestOf(await readBounded(path));
  } catch (error) {
    return readFailure(error);
  }
}

function digestOf(content: Buffer): string {
  return createHash("sha256").update(content).digest("base64");
}
