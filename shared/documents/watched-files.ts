import { type ContentWatch, watchFiles } from "./content-watch.ts";
import type { WatchTiming } from "./file-watcher.ts";

interface WatchedFilesLog {
  info(fields: object, message: string): void;
  error(fields: object, message: string): void;
}

export interface WatchedFilesOptions<T> {
  readonly log: WatchedFilesLog;
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
