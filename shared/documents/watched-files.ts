import { createHash } from "node:crypto";
import { type FileLog, FileWatcher, type Suspects, type WatchTiming } from "./file-watcher.ts";
import { readBounded, readBoundedSync, readFailure } from "./read-bounded.ts";

export interface WatchedFilesOptions<T> {
  readonly log: FileLog;
  /** Called when new content is in use. Clients that came earlier were verified by the content `before`. */
  onRenewed?(content: T, before: T): void;
  readonly watch?: Partial<WatchTiming>;
}

interface WatchedFilesSource<T> {
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
  close(): void;
}

/**
 * Calls `onChange` when the content of one of the files has changed, or one has appeared or gone. If it returns false,
 * because it could not use the content, the next check calls it again. Start the watch before the first read, so that
 * no change is missed. It keeps no process alive.
 */
export function watchFiles(
  paths: readonly string[],
  onChange: () => unknown,
  timing?: Partial<WatchTiming>,
): ContentWatch {
  if (timing !== undefined) return new ContentChecks(timing).add(paths, onChange);
  shared ??= new ContentChecks();
  return shared.add(paths, onChange);
}

/**
 * Number of owners whose files are read at one time. A read that hangs, as on a network disk that does not answer,
 * holds one of these places, and nobody else's files.
 */
const MOST_CHECKS = 8;

/** One watcher for all files of this process: a thousand clusters may each name a key file. */
let shared: ContentChecks | undefined;

interface ContentCheck {
  readonly paths: readonly string[];
  readonly onChange: () => unknown;
  /** Digests of the files, because there are keys among them; empty after a content that could not be used. */
  digests: readonly string[];
}

class ContentChecks {
  readonly #watcher: FileWatcher<ContentCheck>;
  readonly #checks = new Set<ContentCheck>();
  /** Checks whose files are to be read, and checks whose files are being read. */
  readonly #waiting = new Set<ContentCheck>();
  readonly #reading = new Set<ContentCheck>();

  constructor(timing?: Partial<WatchTiming>) {
    this.#watcher = new FileWatcher(async (suspects) => this.#check(suspects), { timing });
  }

  add(paths: readonly string[], onChange: () => unknown): ContentWatch {
    const check: ContentCheck = { paths, onChange, digests: [] };
    this.#watcher.follow(check, paths); // before the first read
    check.digests = paths.map(digestNow);
    this.#checks.add(check);
    return { close: () => this.#remove(check) };
  }

  #remove(check: ContentCheck): void {
    this.#checks.delete(check);
    this.#waiting.delete(check);
    this.#watcher.forget(check);
    if (this.#checks.size > 0) return;
    this.#watcher.close();
    if (shared === this) shared = undefined;
  }

  #check(suspects: Suspects<ContentCheck>): void {
    for (const check of suspects === "all" ? this.#checks : suspects) this.#waiting.add(check);
    this.#readWaiting();
  }

  #readWaiting(): void {
    for (const check of this.#waiting) {
      if (this.#reading.size >= MOST_CHECKS) return;
      if (!this.#reading.has(check)) void this.#read(check);
    }
  }

  async #read(check: ContentCheck): Promise<void> {
    this.#waiting.delete(check);
    this.#reading.add(check);
    const digests = await Promise.all(check.paths.map(digestLater));
    this.#reading.delete(check);
    const isSame = digests.every((digest, index) => digest === check.digests[index]);
    if (!isSame && this.#checks.has(check)) {
      check.digests = digests;
      if (check.onChange() === false) check.digests = [];
    }
    this.#readWaiting();
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
